//! How much the storage has room for, and what is said when that is not enough for another checkpoint.

use crate::store::QUARANTINE;

/// What is left for the agent's user, and what there is in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    pub bytes: u64,
    pub all_bytes: u64,
    pub files: u64,
    /// 0 where the file system has no limit, or does not tell.
    pub all_files: u64,
}

/// What a checkpoint takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    pub bytes: u64,
    pub files: u64,
}

/// With less than this, not even a small file is sure to fit.
const NOTHING: u64 = 64 << 10;

impl Room {
    /// What is wrong, and what to do about it. `next` is what the next checkpoint will take, if there will be one and
    /// anything is known about it.
    ///
    /// The figures are rough on purpose: what is said is said again whenever it changes, and every program that writes a log
    /// changes what is left.
    pub fn problem(&self, place: &str, next: Option<Need>, has_quarantine: bool) -> Option<String> {
        let left = size_above(self.bytes);
        let bytes = match next {
            _ if self.all_bytes == 0 => None,
            _ if self.bytes < NOTHING => {
                Some(format!("is full: less than {left} of {} is left", size(self.all_bytes)))
            }
            Some(next) if self.bytes < next.bytes => Some(format!(
                "is nearly full: less than {left} of {} is left, and a checkpoint takes {}",
                size(self.all_bytes),
                size(next.bytes)
            )),
            _ => None,
        };
        let files = match next {
            _ if self.all_files == 0 => None,
            _ if self.files == 0 => {
                Some(format!("is full: no more files can be made, it has all {}", self.all_files))
            }
            Some(next) if self.files < next.files => Some(format!(
                "is nearly full: fewer than {} more files can be made, and a checkpoint takes {}",
                above(self.files),
                next.files
            )),
            _ => None,
        };
        let empty = if has_quarantine { format!(", empty {QUARANTINE} in it") } else { String::new() };
        let what = bytes.or(files)?;
        Some(format!(
            "the storage of {place} {what}; make the volume larger{empty}, or keep fewer checkpoints (checkpoint.keepLast)"
        ))
    }
}

/// The next power of two.
fn above(number: u64) -> u64 {
    number.saturating_add(1).checked_next_power_of_two().unwrap_or(u64::MAX)
}

fn size_above(bytes: u64) -> String {
    let rough = above(bytes).max(NOTHING);
    let (unit, name) = unit_of(rough);
    format!("{} {name}", rough / unit)
}

/// With one digit behind the point.
fn size(bytes: u64) -> String {
    let (unit, name) = unit_of(bytes);
    let tenths = (u128::from(bytes) * 10).div_ceil(u128::from(unit));
    let (whole, tenth) = (tenths / 10, tenths % 10);
    if tenth == 0 { format!("{whole} {name}") } else { format!("{whole}.{tenth} {name}") }
}

fn unit_of(bytes: u64) -> (u64, &'static str) {
    let units = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    units.into_iter().find(|(unit, _)| bytes >= *unit).unwrap_or((1, "bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const ROOM: Room = Room { bytes: 5 * GIB, all_bytes: 10 * GIB, files: 1000, all_files: 2000 };
    const NEXT: Need = Need { bytes: GIB + GIB / 5, files: 12 };

    fn said(room: Room, next: Option<Need>) -> Option<String> {
        room.problem("/checkpoints", next, false)
    }

    #[test]
    fn room_for_another_is_enough() {
        assert_eq!(said(ROOM, Some(NEXT)), None);
        assert_eq!(said(Room { bytes: NEXT.bytes, files: NEXT.files, ..ROOM }, Some(NEXT)), None);
        assert_eq!(
            said(Room { bytes: NOTHING, files: 1, ..ROOM }, None),
            None,
            "nobody knows what will come"
        );
    }

    #[test]
    fn what_is_full_is_told_with_what_to_do() {
        let full = said(Room { bytes: 0, ..ROOM }, None);
        let text = "the storage of /checkpoints is full: less than 64 KiB of 10 GiB is left; make the volume larger, or keep \
                    fewer checkpoints (checkpoint.keepLast)";
        assert_eq!(full.as_deref(), Some(text));
        let nearly = said(Room { bytes: 300 << 20, ..ROOM }, Some(NEXT)).unwrap();
        let words =
            "is nearly full: less than 512 MiB of 10 GiB is left, and a checkpoint takes 1.2 GiB; make";
        assert!(nearly.contains(words), "{nearly}");
        let aside = Room { bytes: 0, ..ROOM }.problem("/checkpoints", None, true).unwrap();
        assert!(aside.contains("larger, empty .trainyard/quarantine in it, or keep"), "{aside}");
    }

    #[test]
    fn a_disk_can_be_full_of_files() {
        let full = said(Room { files: 0, ..ROOM }, None).unwrap();
        assert!(full.contains("is full: no more files can be made, it has all 2000; make"), "{full}");
        let nearly = said(Room { files: 9, ..ROOM }, Some(NEXT)).unwrap();
        let words = "nearly full: fewer than 16 more files can be made, and a checkpoint takes 12; make";
        assert!(nearly.contains(words), "{nearly}");
        assert_eq!(said(Room { files: 0, all_files: 0, ..ROOM }, Some(NEXT)), None, "there is no limit");
    }

    #[test]
    fn figures_are_the_same_for_a_while() {
        let texts: std::collections::BTreeSet<_> =
            (150..250).filter_map(|mib| said(Room { bytes: mib << 20, ..ROOM }, Some(NEXT))).collect();
        assert_eq!(texts.len(), 1, "{texts:?}");
    }
}
