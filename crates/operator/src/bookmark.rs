//! Where one is in a log that is followed: when the connection breaks, what was read before is not news again.
//!
//! Kubernetes gives a log from a second on, and the last lines of that second were read already. Each line has its time before it,
//! in nanoseconds, by which it is known again. That time is the node's: it is compared with none but its own.

use jiff::Timestamp;

#[derive(Debug, Default)]
pub(crate) struct Bookmark {
    /// The time of the last line.
    at: Option<Timestamp>,
    /// So many lines of that very time were read.
    lines: usize,
    /// So many of them have come since the log was opened.
    seen: usize,
    /// What comes was read before, until a line that was not.
    catching_up: bool,
    /// The last line was one that had been read.
    skips: bool,
}

impl Bookmark {
    /// The log is opened again: from when on to ask for it, if any of it was read.
    pub(crate) fn reopen(&mut self) -> Option<Timestamp> {
        self.seen = 0;
        self.catching_up = self.at.is_some();
        self.skips = false;
        // Kubernetes takes whole seconds.
        self.at.and_then(|at| Timestamp::from_second(at.as_second()).ok())
    }

    /// The line without its time, unless it was read before.
    pub(crate) fn take<'l>(&mut self, line: &'l str) -> Option<&'l str> {
        let stamp = line.split_once(' ').unwrap_or((line, ""));
        let stamped = stamp.0.parse::<Timestamp>().ok().map(|at| (at, stamp.1));
        // What comes behind a carriage return is of the same line.
        let Some((at, text)) = stamped else { return (!self.skips).then_some(line) };
        if self.at == Some(at) {
            self.seen += 1;
            self.skips = self.catching_up && self.seen <= self.lines;
            self.lines = self.lines.max(self.seen);
        } else {
            self.skips = self.catching_up && self.at.is_some_and(|last| at < last);
            if !self.skips {
                (self.at, self.lines, self.seen) = (Some(at), 1, 1);
            }
        }
        self.catching_up &= self.skips;
        (!self.skips).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: &str = "2026-11-18T07:00:0";

    fn read(bookmark: &mut Bookmark, lines: &[String]) -> Vec<String> {
        lines.iter().filter_map(|line| bookmark.take(line)).map(str::to_owned).collect()
    }

    #[test]
    fn what_was_read_is_not_read_again() {
        let log = ["1.5Z a", "2.25Z b", "2.25Z c", "2.75Z d"].map(|line| format!("{T}{line}"));
        for cut in 0..=log.len() {
            let mut bookmark = Bookmark::default();
            assert_eq!(bookmark.reopen(), None);
            let mut all = read(&mut bookmark, &log[..cut]);
            let again = bookmark.reopen();
            let from =
                again.map(|at| log.iter().position(|line| line[..19] == at.to_string()[..19]).unwrap());
            all.extend(read(&mut bookmark, &log[from.unwrap_or(0)..]));
            assert_eq!(all, ["a", "b", "c", "d"], "cut after {cut}");
        }
    }

    #[test]
    fn a_line_that_is_told_in_parts_is_one() {
        let mut bookmark = Bookmark::default();
        let lines = [format!("{T}1Z 10%"), "20%".to_owned(), format!("{T}2Z done")];
        assert_eq!(read(&mut bookmark, &lines), ["10%", "20%", "done"]);
        bookmark.reopen();
        let lines = [lines[2].clone(), format!("{T}3Z more")];
        assert_eq!(read(&mut bookmark, &lines), ["more"]);
    }

    #[test]
    fn a_clock_that_is_set_back_hides_nothing() {
        let mut bookmark = Bookmark::default();
        let lines = [format!("{T}9Z a"), format!("{T}1Z b"), format!("{T}2Z c")];
        assert_eq!(read(&mut bookmark, &lines), ["a", "b", "c"]);
        assert_eq!(bookmark.reopen().map(|at| at.to_string()), Some(format!("{T}2Z")));
        assert_eq!(read(&mut bookmark, &[lines[2].clone(), format!("{T}3Z d")]), ["d"]);
    }
}
