//! What is probably meant where a file is no YAML.
//!
//! Parsers complain where they lose the thread, which is rarely where the mistake is. The mistakes that people make are
//! few, and most of them can be seen in the line that is complained about, in the one before, or in what was opened
//! before and is never closed.

/// The lines to look at, with a mark below the place, and what to do, where that can be told. Lines and columns
/// count from 1.
pub(crate) fn explained(text: &str, line: usize, column: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    if lines.is_empty() {
        return String::new();
    }
    // The end of the file is behind its last line.
    let at_end = line > lines.len();
    let line = line.clamp(1, lines.len());
    let hint = hint(&lines, line);
    let mut shown: Vec<usize> = hint.iter().map(|hint| hint.line).collect();
    shown.extend(line.checked_sub(1).filter(|before| *before > 0));
    shown.push(line);
    shown.sort_unstable();
    shown.dedup();
    let mut told = Vec::new();
    for number in shown {
        let content: String =
            lines.get(number - 1).copied().unwrap_or_default().chars().take(WIDTH).collect();
        told.push(format!("{number:>6} | {}", content.replace('\t', "→")).trim_end().to_owned());
    }
    if !at_end && column <= WIDTH {
        told.push(format!("       | {:>column$}", "^"));
    }
    told.extend(hint.map(|hint| format!("  {}", hint.words)));
    told.iter().map(|line| format!("\n{line}")).collect::<Vec<_>>().concat()
}

/// More of a line is not shown.
const WIDTH: usize = 120;

struct Hint {
    line: usize,
    words: String,
}

fn hint(lines: &[&str], line: usize) -> Option<Hint> {
    let before = (1..line).rev().find(|number| !is_blank(lines[number - 1]));
    let near: Vec<usize> = before.into_iter().chain([line]).collect();
    let about = |line: usize, words: String| Some(Hint { line, words });
    for number in &near {
        let indent = &lines[number - 1][..indent(lines[number - 1])];
        if indent.contains('\t') {
            return about(*number, format!("line {number} is indented with a tab: use spaces"));
        }
    }
    if let Some((mark, opened)) = never_closed(lines, line) {
        let with = match mark {
            '[' => ']',
            '{' => '}',
            quote => quote,
        };
        return about(opened, format!("the {mark} in line {opened} is not closed: close it with {with}"));
    }
    for number in &near {
        let (key, rest) = key_and_rest(lines[number - 1]);
        if !key.is_empty() && rest.starts_with(|next: char| next.is_alphanumeric() || "\"'[{".contains(next))
        {
            return about(*number, format!("a space is missing after \"{key}:\" in line {number}"));
        }
    }
    for number in &near {
        let (key, value) = key_and_value(lines[number - 1]);
        let quoted = value.starts_with(['"', '\'', '[', '{', '|', '>', '&', '*', '!']);
        if !quoted && !key.is_empty() && (value.contains(": ") || value.ends_with(':')) {
            return about(*number, format!("put the value of \"{key}\" in quotes: it has a colon in it"));
        }
        if value.starts_with(['@', '`', '%']) {
            return about(*number, format!("put the value of \"{key}\" in quotes: {value}"));
        }
    }
    let before = before?;
    let (above, here) = (indent(lines[before - 1]), indent(lines[line - 1]));
    let has_value = !key_and_value(lines[before - 1]).1.is_empty();
    if here > above && has_value && !lines[before - 1].trim_start().starts_with("- ") {
        let words = format!(
            "line {line} is indented by {here} spaces, below a field that has its value already: indent it by {above}, as \
             line {before}"
        );
        return about(line, words);
    }
    if here < above && !lines[..line - 1].iter().any(|other| !is_blank(other) && indent(other) == here) {
        return about(
            line,
            format!("no line before line {line} is indented by {here} spaces, as it is: align it"),
        );
    }
    let lonely = |number: &&usize| {
        let content = lines[**number - 1].trim();
        !content.contains(':') && !content.starts_with(['-', '#', '[', ']', '{', '}', '"', '\''])
    };
    let lonely = near.iter().find(lonely)?;
    about(*lonely, format!("line {lonely} has no colon: fields are written as \"name: value\""))
}

fn is_blank(line: &str) -> bool {
    let content = line.trim();
    content.is_empty() || content.starts_with('#')
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches([' ', '\t']).len()
}

/// The name of a line's field and what comes right after its colon.
fn key_and_rest(line: &str) -> (&str, &str) {
    let content = line.trim_start_matches([' ', '-']);
    let is_name = |key: &str| {
        key.starts_with(char::is_alphabetic) && key.chars().all(|c| c.is_alphanumeric() || "_-./".contains(c))
    };
    content.split_once(':').filter(|(key, _)| is_name(key)).unwrap_or(("", ""))
}

fn key_and_value(line: &str) -> (&str, &str) {
    let (key, rest) = key_and_rest(line);
    let value = rest.trim();
    (key, if value.starts_with('#') { "" } else { value })
}

/// The first bracket or quote, in this line or before it, that is not closed in its document. What is in quotes may go on
/// in lines that are indented more.
fn never_closed(lines: &[&str], limit: usize) -> Option<(char, usize)> {
    let mut open: Vec<(char, usize)> = Vec::new();
    // The lines of a block scalar are indented more than its field.
    let mut block: Option<usize> = None;
    // A quote that is open, its line, and how that is indented.
    let mut quote: Option<(char, usize, usize)> = None;
    for (line, number) in lines.iter().zip(1..) {
        if let Some((mark, opened, of)) = quote
            && !is_blank(line)
            && indent(line) <= of
        {
            return (opened <= limit).then_some((mark, opened));
        }
        if line.starts_with("---") {
            if number > limit {
                break;
            }
            (open, block) = (Vec::new(), None);
            continue;
        }
        if block.is_some_and(|of| is_blank(line) || indent(line) > of) {
            continue;
        }
        block = None;
        let mut before = ' ';
        // Whether a value may begin here: elsewhere, quotes and brackets are letters like others.
        let mut begins = true;
        let mut characters = line.chars().peekable();
        while let Some(c) = characters.next() {
            if let Some((mark, ..)) = quote {
                let doubled = mark == '\'' && c == mark && characters.peek() == Some(&mark);
                if doubled || (mark == '"' && c == '\\') {
                    characters.next();
                } else if c == mark {
                    quote = None;
                }
                (begins, before) = (false, c);
                continue;
            }
            if begins && (c == '"' || c == '\'') {
                quote = Some((c, number, indent(line)));
                continue;
            }
            match c {
                '#' if before.is_whitespace() => break,
                '[' | '{' if begins || !open.is_empty() => open.push((c, number)),
                ']' | '}' if !open.is_empty() => {
                    let opener = if c == ']' { '[' } else { '{' };
                    match open.pop() {
                        Some((mark, _)) if mark == opener => {}
                        wrong => return wrong.filter(|(_, line)| *line <= limit),
                    }
                }
                _ => {}
            }
            begins = match c {
                '[' | '{' | ',' => !open.is_empty(),
                ':' => true,
                '-' | ' ' => begins,
                _ => false,
            };
            before = c;
        }
        let content = line.trim_end();
        if open.is_empty()
            && quote.is_none()
            && content.rsplit([' ', '\t']).next().is_some_and(|last| last.starts_with(['|', '>']))
        {
            block = Some(indent(line));
        }
    }
    let quote = quote.map(|(mark, opened, _)| (mark, opened));
    quote.into_iter().chain(open).find(|(_, line)| *line <= limit)
}

#[cfg(test)]
mod tests {
    use crate::manifest::documents;

    const HEAD: &str = "apiVersion: ml.example.com/v1\nkind: TrainingJob\nspec:\n";

    #[test]
    fn common_mistakes_are_told() {
        for (lines, hint) in [
            ("  command: [a, b\n  numWorkers: 1\n", "the [ in line 4 is not closed: close it with ]"),
            ("  env: {a: b\n  args: [c, d]\n", "the { in line 4 is not closed: close it with }"),
            ("  args: [\"a\n  numWorkers: 1\n", "the \" in line 4 is not closed: close it with \""),
            ("  image: 'x\n  numWorkers: 1\n", "the ' in line 4 is not closed: close it with '"),
            ("  resources:\n\tlimits: 1\n", "line 5 is indented with a tab: use spaces"),
            ("  image:x\n  numWorkers: 1\n", "a space is missing after \"image:\" in line 4"),
            ("  image: a: b\n", "put the value of \"image\" in quotes: it has a colon in it"),
            ("  image: @x\n", "put the value of \"image\" in quotes: @x"),
            (
                "  numWorkers: two\n   bad: 1\n",
                "line 5 is indented by 3 spaces, below a field that has its value already: indent it by 2, as line 4",
            ),
            ("  image: x\n bad: 1\n", "no line before line 5 is indented by 1 spaces, as it is: align it"),
            ("  image x\n  numWorkers: 1\n", "line 4 has no colon"),
        ] {
            let text = format!("{HEAD}{lines}");
            let told = documents(&text).err().map(|error| error.told("f")).unwrap_or_default();
            assert!(told.contains(hint), "{text}\n{told}");
        }
    }

    #[test]
    fn the_lines_to_look_at_are_shown() {
        let text = format!("{HEAD}  command: [a, b\n  image: x\n  numWorkers: 1\n");
        let told = documents(&text).err().map(|error| error.told("f")).unwrap_or_default();
        let lines: Vec<&str> = told.lines().collect();
        assert!(lines[0].starts_with("f:5:8: this is not YAML: "), "{told}");
        assert_eq!(
            lines[1..],
            [
                "     4 |   command: [a, b",
                "     5 |   image: x",
                "       |        ^",
                "  the [ in line 4 is not closed: close it with ]",
            ],
            "{told}"
        );
    }

    #[test]
    fn what_is_right_is_not_suspected() {
        let text = "a: [1,\n  {b: \"]\"}, 'it''s']\nc: it's [ok\ng: \"x [\n  y\"\nd: |\n  [ \"\n  - x\ne: x # [\n---\nf: [\n";
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(super::never_closed(&lines, 9), None);
        assert_eq!(super::never_closed(&lines, 11), Some(('[', 11)));
    }
}
