//! How keys of hyperparameters are written as variables and as flags.

/// `learningRate` → `LEARNING_RATE`, the way shells like it.
pub fn upper_snake(key: &str) -> String {
    words(key).join("_").to_uppercase()
}

/// `learningRate` → `LEARNINGRATE`, as the guide writes it.
pub fn upper(key: &str) -> String {
    key.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

/// `learningRate` → `learning-rate`, as a flag.
pub fn kebab(key: &str) -> String {
    words(key).join("-").to_lowercase()
}

/// Splits at underscores, dashes, dots and at the start of a capital (`numGPUs` → num, GPUs).
fn words(key: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in key.chars() {
        let boundary = !c.is_ascii_alphanumeric();
        if boundary || (c.is_ascii_uppercase() && (before.is_ascii_lowercase() || before.is_ascii_digit())) {
            words.push(String::new());
        }
        if !boundary && let Some(word) = words.last_mut() {
            word.push(c);
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_spellings() {
        assert_eq!(
            (upper_snake("learningRate"), upper("learningRate"), kebab("learningRate")),
            ("LEARNING_RATE".into(), "LEARNINGRATE".into(), "learning-rate".into())
        );
        assert_eq!(
            (upper_snake("batch_size"), upper("batch_size"), kebab("batch_size")),
            ("BATCH_SIZE".into(), "BATCH_SIZE".into(), "batch-size".into())
        );
        assert_eq!(
            (upper_snake("epochs"), kebab("numGPUs"), kebab("a.b")),
            ("EPOCHS".into(), "num-gpus".into(), "a-b".into())
        );
    }
}
