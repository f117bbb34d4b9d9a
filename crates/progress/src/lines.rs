//! The lines of a log that arrives in pieces.

/// No line that tells of progress is longer; the rest of a longer one is dropped.
const LINE_MAX: usize = 64 << 10;

/// Puts pieces together and takes lines out. Progress bars end their lines with a carriage return, so that ends a line
/// here, too. Terminal colours and cursor movements are dropped.
#[derive(Debug, Default)]
pub struct Lines {
    buffer: Vec<u8>,
    dropping: bool,
}

impl Lines {
    /// Takes a piece and gives every line that it completes.
    pub fn push(&mut self, piece: &[u8], mut line: impl FnMut(&str)) {
        for part in piece.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let (text, ends) = match part.split_last() {
                Some((b'\n' | b'\r', text)) => (text, true),
                _ => (part, false),
            };
            if self.buffer.len() + text.len() > LINE_MAX {
                self.dropping = true;
                self.buffer.clear();
            }
            if !self.dropping {
                self.buffer.extend_from_slice(text);
            }
            if ends {
                if !self.dropping && !self.buffer.is_empty() {
                    line(&plain(&self.buffer));
                }
                self.buffer.clear();
                self.dropping = false;
            }
        }
    }

    /// The log is over: what is left is a line, too.
    pub fn finish(&mut self, mut line: impl FnMut(&str)) {
        if !self.dropping && !self.buffer.is_empty() {
            line(&plain(&self.buffer));
        }
        *self = Self::default();
    }
}

/// Without escape sequences and control characters.
fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    if !text.contains(|c: char| c.is_control() && c != '\t') {
        return text.into_owned();
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            // CSI: parameters, then one letter.
            '\u{1b}' => {
                if rest.next_if_eq(&'[').is_some() {
                    while rest.next_if(|c| !c.is_ascii_alphabetic()).is_some() {}
                }
                rest.next();
            }
            '\u{8}' => {
                plain.pop();
            }
            '\t' => plain.push('\t'),
            c if c.is_control() => {}
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(pieces: &[&[u8]]) -> Vec<String> {
        let (mut lines, mut seen) = (Lines::default(), Vec::new());
        for piece in pieces {
            lines.push(piece, |line| seen.push(line.to_owned()));
        }
        lines.finish(|line| seen.push(line.to_owned()));
        seen
    }

    #[test]
    fn lines_end_with_newlines_and_carriage_returns() {
        assert_eq!(all(&[b"a\nb\r", b"\nc", b"d\r\re"]), ["a", "b", "cd", "e"]);
    }

    #[test]
    fn colours_are_dropped_and_endless_lines_too() {
        assert_eq!(all(&["\u{1b}[32mloss\u{1b}[0m 0.5\tx\u{8}y\n".as_bytes()]), ["loss 0.5\ty"]);
        let endless = vec![b'x'; LINE_MAX];
        assert_eq!(all(&[&endless, b"more", b"\nnext\n"]), ["next"]);
    }

    proptest! {
        #[test]
        fn the_pieces_do_not_matter(text in "[a-z\r\n]{0,40}", cut in 0usize..40) {
            let cut = cut.min(text.len());
            let (first, second) = text.as_bytes().split_at(cut);
            prop_assert_eq!(all(&[first, second]), all(&[text.as_bytes()]));
        }
    }
}
