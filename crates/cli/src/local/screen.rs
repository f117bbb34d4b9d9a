//! A terminal: output that scrolls away, and under it lines that are drawn again and again.
//!
//! Whatever comes in between two frames is written at once, so that a flood of output costs a few large writes and not
//! one for each line; terminals take each write for an occasion to draw.

use std::io::Write;

use super::line::Line;

/// So much output is not kept back until the next frame.
const BATCH: usize = 64 << 10;

pub(super) struct Screen<W> {
    out: W,
    /// Output that waits for the next frame.
    pending: String,
    /// The lines under it, as they were drawn last; none while output was written without them.
    drawn: Vec<Line>,
}

/// How many rows and columns there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl<W: Write> Screen<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, pending: String::new(), drawn: Vec::new() }
    }

    /// Output, which is there with the next frame at the latest.
    pub(super) fn line(&mut self, text: &str, size: impl FnOnce() -> Size) {
        // A tab moves the cursor without clearing what was there.
        self.pending.push_str(&text.replace('\t', "    "));
        if text.contains('\u{1b}') {
            self.pending.push_str("\u{1b}[0m");
        }
        self.pending.push('\n');
        if self.pending.len() >= BATCH {
            self.write(Vec::new(), size());
        }
    }

    /// A frame: what is pending, and the lines under it as they are now.
    pub(super) fn draw(&mut self, mut lines: Vec<Line>, size: Size) {
        // What is above the upper edge can never be drawn over again.
        lines.truncate(size.rows.saturating_sub(1).max(1));
        if !self.pending.is_empty() || lines != self.drawn {
            self.write(lines, size);
        }
    }

    /// The last frame. What comes next is written below it.
    pub(super) fn end(&mut self, lines: Vec<Line>, size: Size) {
        self.draw(lines, size);
        if !std::mem::take(&mut self.drawn).is_empty() {
            let _ = self.out.write_all(b"\n");
        }
        let _ = self.out.flush();
    }

    /// In one write. That nobody can read it any more is no reason to end.
    fn write(&mut self, lines: Vec<Line>, size: Size) {
        let mut text = String::new();
        if !self.drawn.is_empty() {
            // In a terminal that has become narrower, a line takes more than one row.
            let rows = |line: &Line| line.width().div_ceil(size.columns.max(1)).max(1);
            let up = self.drawn.iter().map(rows).sum::<usize>() - 1;
            text.push('\r');
            if up > 0 {
                text.extend(["\u{1b}[", &up.to_string(), "A"]);
            }
            text.push_str("\u{1b}[J");
        }
        text.push_str(&std::mem::take(&mut self.pending));
        let painted: Vec<String> = lines.iter().map(Line::painted).collect();
        text.push_str(&painted.join("\n"));
        self.drawn = lines;
        let _ = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
    }
}

#[cfg(test)]
mod tests {
    use trainyard_api::TrainingJobStatus;

    use super::*;

    /// Counts what reaches the terminal.
    #[derive(Default)]
    struct Writes(Vec<String>);

    impl Write for Writes {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.push(String::from_utf8_lossy(bytes).into_owned());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    const SIZE: Size = Size { rows: 24, columns: 80 };

    fn live(text: &str) -> Vec<Line> {
        vec![Line::stopping("a", &TrainingJobStatus::default(), text.to_owned(), 80)]
    }

    #[test]
    fn what_comes_between_two_frames_is_one_write() {
        let mut screen = Screen::new(Writes::default());
        screen.draw(live("x"), SIZE);
        for number in 0..100 {
            screen.line(&format!("line {number}"), || SIZE);
        }
        assert_eq!(screen.out.0.len(), 1, "nothing before the next frame");
        screen.draw(live("x"), SIZE);
        screen.draw(live("x"), SIZE);
        assert_eq!(screen.out.0.len(), 2, "one write for all, and none where nothing has changed");
        let text = &screen.out.0[1];
        assert!(text.starts_with("\r\u{1b}[Jline 0\nline 1\n"), "{text}");
        assert!(text.ends_with(&format!("line 99\n{}", live("x")[0].painted())), "{text}");
    }

    #[test]
    fn a_flood_is_not_kept_back_and_nothing_of_it_is_lost() {
        let mut screen = Screen::new(Writes::default());
        screen.draw(live("x"), SIZE);
        for _ in 0..100_000 {
            screen.line("0123456789", || SIZE);
        }
        screen.end(live("x"), SIZE);
        let written = screen.out.0.concat();
        assert_eq!(written.matches("0123456789\n").count(), 100_000);
        assert!(screen.out.0.len() < 30, "{} writes", screen.out.0.len());
        assert!(written.ends_with(&format!("{}\n", live("x")[0].painted())), "the last state stays");
    }
}
