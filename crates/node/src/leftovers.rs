//! What a predecessor left behind, where there are no namespaces that end with it.
//!
//! A shim ends its program when the node dies. Somebody who kills all of trainyard at once kills the shims, too, and the
//! programs go on: so each is written down while it runs, and the next start ends those that are still there.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// A program that is written down, until this is dropped.
#[derive(Debug)]
pub(crate) struct Entry(PathBuf);

impl Drop for Entry {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn directory(state_dir: &Path) -> PathBuf {
    state_dir.join("running")
}

/// Writes down a program. Its process group has its pid.
pub(crate) fn note(state_dir: &Path, pid: i32) -> Option<Entry> {
    let birth = birth(pid)?;
    let directory = directory(state_dir);
    fs::create_dir_all(&directory).ok()?;
    let path = directory.join(pid.to_string());
    fs::write(&path, birth).ok()?;
    Some(Entry(path))
}

/// Ends what is written down and still runs; how many that were.
pub(crate) fn end_all(state_dir: &Path) -> usize {
    let mut ended = 0;
    for entry in fs::read_dir(directory(state_dir)).into_iter().flatten().flatten() {
        let path = entry.path();
        let pid: Option<i32> = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(pid) = pid
            && fs::read_to_string(&path).ok() == birth(pid)
            && killpg(Pid::from_raw(pid), Signal::SIGKILL).is_ok()
        {
            ended += 1;
        }
        let _ = fs::remove_file(&path);
    }
    ended
}

/// When a process was born, in a form that no other process ever has: pids are used again, after a restart of the machine, too.
fn birth(pid: i32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let ticks = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(format!("{} {ticks}", boot.trim()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::Command;

    use super::*;

    #[test]
    fn what_still_runs_is_ended_and_nobody_else() {
        let state = tempfile::tempdir().unwrap();
        let mut left = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        let entry = note(state.path(), i32::try_from(left.id()).unwrap()).unwrap();
        // The predecessor did not get to remove it.
        std::mem::forget(entry);
        let mut stranger = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        fs::write(directory(state.path()).join(stranger.id().to_string()), "another boot 1").unwrap();
        assert_eq!(end_all(state.path()), 1);
        assert_eq!(left.wait().unwrap().signal(), Some(9));
        assert!(stranger.try_wait().unwrap().is_none());
        stranger.kill().unwrap();
        stranger.wait().unwrap();
        assert_eq!(fs::read_dir(directory(state.path())).unwrap().count(), 0);
    }

    #[test]
    fn an_end_is_taken_off_the_list() {
        let state = tempfile::tempdir().unwrap();
        let entry = note(state.path(), i32::try_from(std::process::id()).unwrap());
        drop(entry.unwrap());
        assert_eq!(end_all(state.path()), 0);
    }
}
