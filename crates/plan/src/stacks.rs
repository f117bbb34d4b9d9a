//! Where programs hang, from what they or a debugger print about their threads: one sentence out of pages of frames.

use crate::text;

/// So many of the innermost frames are told.
const FRAMES: usize = 3;
/// So long the sentence may become.
const LENGTH: usize = 600;

/// Who did not answer (empty texts), and who hangs where: "worker 1 in read (train.py:44), called from step (train.py:80)". Those who hang at the same place are told of together. Nothing,
/// if no text has a stack in it.
pub(crate) fn summary<'t>(texts: impl IntoIterator<Item = (String, &'t str)>) -> Option<String> {
    let mut places: Vec<(String, Vec<String>)> = Vec::new();
    let mut silent = Vec::new();
    for (who, text) in texts {
        if text.is_empty() {
            silent.push(who);
            continue;
        }
        let Some(place) = place(text) else { continue };
        match places.iter_mut().find(|(known, _)| *known == place) {
            Some((_, all)) => all.push(who),
            None => places.push((place, vec![who])),
        }
    }
    // Who hangs alone is more telling than those who all wait for the same thing.
    places.sort_by_key(|(_, all)| all.len());
    let silent = (!silent.is_empty()).then(|| format!("{} did not answer", silent.join(", ")));
    let places: Vec<String> =
        places.into_iter().map(|(place, all)| format!("{} in {place}", all.join(", "))).collect();
    let parts: Vec<String> = silent.filter(|_| !places.is_empty()).into_iter().chain(places).collect();
    (!parts.is_empty()).then(|| text::shortened(&parts.join("; "), LENGTH))
}

/// The innermost frames of the main thread.
fn place(text: &str) -> Option<String> {
    let threads = threads(text);
    let main = threads.iter().rev().find(|thread| thread.main).or(threads.last())?;
    let frames: Vec<&str> = main.frames.iter().take(FRAMES).map(String::as_str).collect();
    (!frames.is_empty()).then(|| frames.join(", called from "))
}

struct Thread {
    main: bool,
    /// The innermost first.
    frames: Vec<String>,
}

/// The threads in a text: as Python's `faulthandler` prints them, or as `py-spy dump` does.
fn threads(text: &str) -> Vec<Thread> {
    let mut threads: Vec<Thread> = Vec::new();
    for line in text.lines() {
        let line = line.trim();
        if let Some(heading) = line.strip_prefix("Current thread ").or_else(|| line.strip_prefix("Thread ")) {
            // Where the signal arrived is the main thread, unless the program has decided otherwise.
            let main = line.starts_with("Current") || heading.ends_with("\"MainThread\"");
            threads.push(Thread { main, frames: Vec::new() });
        } else if let (Some(frame), Some(thread)) = (frame(line), threads.last_mut()) {
            thread.frames.push(frame);
        }
    }
    threads.retain(|thread| !thread.frames.is_empty());
    threads
}

/// `File "/app/train.py", line 44 in step` or `step (train.py:44)`, as the latter.
fn frame(line: &str) -> Option<String> {
    if let Some(rest) = line.strip_prefix("File \"") {
        let (file, rest) = rest.split_once("\", line ")?;
        let (number, function) = rest.split_once(" in ")?;
        return Some(format!("{} ({}:{number})", function.trim(), base(file)));
    }
    let (function, place) = line.strip_suffix(')')?.rsplit_once(" (")?;
    let (file, number) = place.rsplit_once(':')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| format!("{} ({}:{number})", function.trim(), base(file)))
}

fn base(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAULTHANDLER: &str = "\
step 76 loss 0.31
Fatal Python error: Aborted

Thread 0x00007f2b3c5ff6c0 (most recent call first):
  File \"/usr/lib/python3.11/threading.py\", line 320 in wait
  File \"/usr/lib/python3.11/queue.py\", line 180 in get

Current thread 0x00007f2b4d0a1740 (most recent call first):
  File \"/app/data.py\", line 12 in read
  File \"/app/train.py\", line 44 in step
  File \"/app/train.py\", line 90 in main
  File \"/app/train.py\", line 99 in <module>

Extension modules: numpy._core._multiarray_umath (total: 1)
";

    const PY_SPY: &str = "\
Process 41: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 41 (idle): \"MainThread\"
    all_reduce (torch/distributed/distributed_c10d.py:2000)
    step (train.py:47)
    main (train.py:90)
    <module> (train.py:99)
Thread 52 (idle): \"Thread-1\"
    wait (threading.py:320)
";

    #[test]
    fn whoever_hangs_alone_is_told_first() {
        let texts = [
            ("worker 0".to_owned(), PY_SPY),
            ("worker 1".to_owned(), FAULTHANDLER),
            ("worker 2".to_owned(), PY_SPY),
            ("worker 3".to_owned(), "no stack here (really: 3)"),
        ];
        assert_eq!(
            summary(texts).as_deref(),
            Some(
                "worker 1 in read (data.py:12), called from step (train.py:44), called from main (train.py:90); \
                 worker 0, worker 2 in all_reduce (distributed_c10d.py:2000), called from step (train.py:47), called from main (train.py:90)"
            )
        );
    }

    #[test]
    fn who_does_not_answer_while_others_do_is_told() {
        let texts = [("worker 0".to_owned(), ""), ("worker 1".to_owned(), PY_SPY)];
        let told = summary(texts).expect("one answered");
        assert!(told.starts_with("worker 0 did not answer; worker 1 in all_reduce"), "{told}");
    }

    #[test]
    fn a_text_without_a_stack_says_nothing() {
        for text in
            ["", "Thread 1", "File \"x\", line 3", "  f (a:b)\n g (:)", "Current thread \u{fffd}:\n  ("]
        {
            assert_eq!(summary([("worker 0".to_owned(), text)]), None, "{text}");
        }
    }
}
