//! Where things are kept on this machine.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// The layout of state directories.
const FORMAT: u32 = 1;

/// The state directory of `trainyard run FILE`, beside the file, so that the next run of it finds the checkpoints and two
/// projects never share any.
pub(crate) fn of_file(file: &Path) -> anyhow::Result<PathBuf> {
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = file.file_name().and_then(|name| name.to_str()).filter(|name| *name != "-").unwrap_or("stdin");
    let kept = directory.join(".trainyard");
    std::fs::create_dir_all(&kept)
        .with_context(|| format!("making {} (give another place with --state DIR)", kept.display()))?;
    let ignore = kept.join(".gitignore");
    if !ignore.exists() {
        // What a run leaves behind is nobody's source code.
        std::fs::write(&ignore, "*\n").with_context(|| format!("writing {}", ignore.display()))?;
    }
    prepared(&kept.join(name))
}

/// The state directory of `trainyard up`, unless it is given.
pub(crate) fn of_machine() -> anyhow::Result<PathBuf> {
    let base = std::env::var_os("XDG_STATE_HOME").filter(|base| !base.is_empty()).map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let base = base.or_else(home).context("neither XDG_STATE_HOME nor HOME is set: give --state DIR")?;
    Ok(base.join("trainyard"))
}

/// The directory as an absolute path, made if it is not there. One that a newer version has used is refused: this one
/// does not know what is in it.
pub(crate) fn prepared(directory: &Path) -> anyhow::Result<PathBuf> {
    let is_new = !directory.exists();
    std::fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    let file = directory.join("format");
    if is_new || file.exists() {
        // Ours, with secrets in it: for nobody else to read. Somebody else's directory stays as that person wants it.
        let _ = std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700));
    }
    match std::fs::read_to_string(&file) {
        Ok(text) => {
            let found: u32 =
                text.trim().parse().with_context(|| format!("{} has no number", file.display()))?;
            if found > FORMAT {
                bail!(
                    "{} was used by a newer trainyard (format {found}, this one knows up to {FORMAT}): use that one, \
                     or give another directory with --state",
                    directory.display()
                );
            }
        }
        Err(_) => {
            std::fs::write(&file, format!("{FORMAT}\n"))
                .with_context(|| format!("writing {}", file.display()))?;
        }
    }
    directory.canonicalize().with_context(|| format!("{}", directory.display()))
}
