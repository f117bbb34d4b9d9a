//! Licences and sources of all dependencies, checked offline against the lists in deny.toml.
//!
//! The same lists serve cargo-deny, where somebody has it; this needs nothing but cargo. Advisories need a database
//! from the network, so they are not part of the tests (`cargo deny check advisories`).

use anyhow::{Context, bail};
use serde_json::Value;

use crate::manifests::root;
use crate::test::cargo;

pub(crate) fn check() -> anyhow::Result<()> {
    println!("== licences and sources");
    let allowed = allowed()?;
    // What the binary is made of; crates for other systems are not even downloaded.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let arguments =
        ["metadata", "--locked", "--offline", "--format-version", "1", "--filter-platform", &platform];
    let output = cargo(&arguments).output()?;
    if !output.status.success() {
        bail!("cargo metadata failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).context("the answer of cargo metadata")?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let mut complaints = Vec::new();
    for package in packages {
        let name = format!(
            "{} {}",
            package["name"].as_str().unwrap_or("?"),
            package["version"].as_str().unwrap_or("?")
        );
        match package["license"].as_str() {
            Some(licence) if satisfied(licence, &allowed) => {}
            Some(licence) => complaints.push(format!("{name}: {licence} is not in the list")),
            None => complaints.push(format!("{name}: has no licence")),
        }
        let source = package["source"].as_str();
        if source.is_some_and(|source| !source.starts_with("registry+")) {
            complaints
                .push(format!("{name}: comes from {} and not from a registry", source.unwrap_or_default()));
        }
    }
    if !complaints.is_empty() {
        bail!("deny.toml does not allow:\n  {}", complaints.join("\n  "));
    }
    println!(
        "   {} packages, {} licences allowed; advisories are not checked offline",
        packages.len(),
        allowed.len()
    );
    Ok(())
}

/// The strings of `allow = [...]` in deny.toml.
fn allowed() -> anyhow::Result<Vec<String>> {
    let text = std::fs::read_to_string(root().join("deny.toml")).context("reading deny.toml")?;
    let licences = text.split("[licenses]").nth(1).context("deny.toml has no [licenses]")?;
    let list = licences.split("allow = [").nth(1).and_then(|rest| rest.split(']').next());
    let list = list.context("[licenses] in deny.toml has no allow list")?;
    let lines = list.lines().map(|line| line.split('#').next().unwrap_or_default());
    Ok(lines
        .flat_map(|line| line.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>())
        .collect())
}

/// Whether an SPDX expression can be satisfied with the allowed licences.
fn satisfied(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut position = 0;
    any(&tokens, &mut position, allowed) && position == tokens.len()
}

fn any(tokens: &[&str], position: &mut usize, allowed: &[String]) -> bool {
    let mut value = all(tokens, position, allowed);
    while tokens.get(*position) == Some(&"OR") {
        *position += 1;
        value |= all(tokens, position, allowed);
    }
    value
}

fn all(tokens: &[&str], position: &mut usize, allowed: &[String]) -> bool {
    let mut value = one(tokens, position, allowed);
    while tokens.get(*position) == Some(&"AND") {
        *position += 1;
        value &= one(tokens, position, allowed);
    }
    value
}

fn one(tokens: &[&str], position: &mut usize, allowed: &[String]) -> bool {
    let Some(token) = tokens.get(*position) else { return false };
    *position += 1;
    if *token == "(" {
        let value = any(tokens, position, allowed);
        *position += 1;
        return value;
    }
    let mut licence = (*token).to_owned();
    if tokens.get(*position) == Some(&"WITH") {
        licence = format!("{licence} WITH {}", tokens.get(*position + 1).unwrap_or(&""));
        *position += 2;
    }
    allowed.contains(&licence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions() {
        let allowed = ["MIT".to_owned(), "Apache-2.0 WITH LLVM-exception".to_owned()];
        for good in
            ["MIT", "MIT OR GPL-3.0", "GPL-3.0/MIT", "(GPL-3.0 OR MIT) AND Apache-2.0 WITH LLVM-exception"]
        {
            assert!(satisfied(good, &allowed), "{good}");
        }
        for bad in ["GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0", "", "MIT MIT"] {
            assert!(!satisfied(bad, &allowed), "{bad}");
        }
    }
}
