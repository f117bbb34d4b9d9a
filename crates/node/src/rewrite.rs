//! Changes in what a pod was told, where the machine cannot give it what was written: PURE.
//!
//! Ports that are taken are replaced by others, for everybody in the job who refers to them. Where there are no
//! namespaces, mount paths become real paths and names become addresses.

use std::collections::BTreeMap;

/// What is written, and what must stand there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rewrites {
    /// Ports of the job that were taken.
    pub(crate) ports: BTreeMap<u16, u16>,
    /// Names of the job's pods and services; a port is replaced behind one of these.
    pub(crate) names: Vec<String>,
    /// Without namespaces: mount paths and their real directories.
    pub(crate) paths: Vec<(String, String)>,
    /// Without namespaces: names and their addresses.
    pub(crate) addresses: Vec<(String, String)>,
}

impl Rewrites {
    /// The value of a variable.
    pub(crate) fn variable(&self, name: &str, value: &str) -> String {
        if name.to_ascii_uppercase().ends_with("PORT")
            && let Some(port) = self.port(value)
        {
            return port.to_string();
        }
        self.text(value)
    }

    /// Command and arguments.
    pub(crate) fn words(&self, words: &[String]) -> Vec<String> {
        let mut result: Vec<String> = Vec::with_capacity(words.len());
        for (index, word) in words.iter().enumerate() {
            let flag = index.checked_sub(1).map(|before| words[before].as_str()).unwrap_or_default();
            let own = word.split_once('=').filter(|(flag, _)| is_port_flag(flag));
            let replaced = match own {
                Some((flag, value)) => self.port(value).map(|port| format!("{flag}={port}")),
                None if is_port_flag(flag) => self.port(word).map(|port| port.to_string()),
                None => None,
            };
            result.push(replaced.unwrap_or_else(|| self.text(word)));
        }
        result
    }

    fn port(&self, text: &str) -> Option<u16> {
        self.ports.get(&text.parse::<u16>().ok()?).copied()
    }

    fn text(&self, text: &str) -> String {
        let mut result = text.to_owned();
        for name in &self.names {
            for (from, to) in &self.ports {
                result = replace_whole(&result, &format!("{name}:{from}"), &format!("{name}:{to}"), is_name);
            }
        }
        for (name, address) in &self.addresses {
            result = replace_whole(&result, name, address, is_name);
        }
        for (path, real) in &self.paths {
            result = replace_whole(&result, path, real, is_path);
        }
        result
    }
}

/// `--master-port`, `--master_port`, `-p` is not one.
fn is_port_flag(word: &str) -> bool {
    word.starts_with('-') && word.to_ascii_lowercase().ends_with("port")
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '-' | '.' | '_')
}

/// What may not follow or precede a path, or it would be another path. A slash may follow: that is something inside.
fn is_path(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '-' | '.' | '_' | '/')
}

/// Replaces the occurrences that are not part of a longer word.
fn replace_whole(text: &str, from: &str, to: &str, part: fn(char) -> bool) -> String {
    if from.is_empty() || !text.contains(from) {
        return text.to_owned();
    }
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(from) {
        let before = rest[..at].chars().next_back().or_else(|| result.chars().next_back());
        let mut after = rest[at + from.len()..].chars();
        let next = after.next();
        // A dot at the end of a sentence, or a slash after a directory, does not make the word longer.
        let goes_on = match next {
            Some('/') | None => false,
            Some('.') => after.next().is_some_and(part),
            Some(c) => part(c),
        };
        result.push_str(&rest[..at]);
        result.push_str(if before.is_some_and(part) || goes_on { from } else { to });
        rest = &rest[at + from.len()..];
    }
    result.push_str(rest);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewrites() -> Rewrites {
        Rewrites {
            ports: [(29500, 41000)].into(),
            names: vec!["bert-workers-0.bert-workers".to_owned()],
            ..Rewrites::default()
        }
    }

    #[test]
    fn ports() {
        let rewrites = rewrites();
        for (name, value, wanted) in [
            ("MASTER_PORT", "29500", "41000"),
            ("PET_MASTER_PORT", "29500", "41000"),
            ("BATCH", "29500", "29500"),
            ("MASTER_PORT", "29501", "29501"),
            ("URL", "tcp://bert-workers-0.bert-workers:29500/x", "tcp://bert-workers-0.bert-workers:41000/x"),
            ("URL", "bert-workers-0.bert-workers:295001", "bert-workers-0.bert-workers:295001"),
            ("URL", "example.com:29500", "example.com:29500"),
        ] {
            assert_eq!(rewrites.variable(name, value), wanted, "{name}={value}");
        }
        let words =
            |words: &[&str]| rewrites.words(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(words(&["--master-port=29500"]), ["--master-port=41000"]);
        assert_eq!(words(&["--master_port", "29500", "29500"]), ["--master_port", "41000", "29500"]);
        assert_eq!(words(&["--steps", "29500"]), ["--steps", "29500"]);
    }

    #[test]
    fn paths_and_names() {
        let rewrites = Rewrites {
            paths: vec![("/data".to_owned(), "/home/me/claims/d".to_owned())],
            addresses: vec![("w-0.w".to_owned(), "127.77.0.1".to_owned())],
            ..Rewrites::default()
        };
        for (value, wanted) in [
            ("/data", "/home/me/claims/d"),
            ("/data/train.csv", "/home/me/claims/d/train.csv"),
            ("a:/data:/datasets", "a:/home/me/claims/d:/datasets"),
            ("/my/data", "/my/data"),
            ("file:///data/x", "file:///data/x"),
            ("/data-2", "/data-2"),
            ("see /data.", "see /home/me/claims/d."),
            ("/data.csv", "/data.csv"),
            ("w-0.w:29500", "127.77.0.1:29500"),
            ("w-0.w.ml", "w-0.w.ml"),
            ("xw-0.w", "xw-0.w"),
        ] {
            assert_eq!(rewrites.variable("X", value), wanted, "{value}");
        }
    }
}
