//! The glossary: each word once.
//!
//! ```text
//!   | **span** (of the allocator) | a run of pages … |      | **span** (of the page) | what figures are of … |
//! ```
//!
//! W1  A word has one entry. For a second thing that the field calls so, the entry says in brackets of which it speaks.
//!
//! Not here: whether the code uses the word so.

use std::collections::BTreeMap;

use super::Fault;

const RULE: &str = "glossary";

/// Checks the text of the glossary.
pub fn check(file: &str, text: &str) -> Vec<Fault> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut faults = Vec::new();
    let mut entries = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let Some(cell) = line
            .strip_prefix("| ")
            .and_then(|rest| rest.split(" | ").next())
        else {
            continue;
        };
        entries.extend(words(cell).into_iter().map(|word| (word, index + 1)));
    }
    for (word, line) in &entries {
        if let Some(first) = seen.insert(word.clone(), *line) {
            let what = format!(
                "`{word}` has an entry in line {first}: say of which it speaks, or join them"
            );
            faults.push(Fault::new(file, *line, RULE, what));
        }
    }
    faults
}

/// Returns the words that a cell defines, in lower case, each with the brackets behind it.
fn words(cell: &str) -> Vec<String> {
    let parts: Vec<&str> = cell.split("**").collect();
    let mut found = Vec::new();
    for pair in parts[1..].chunks(2) {
        let [word, behind] = pair else { continue };
        let of = behind
            .strip_prefix(" (")
            .and_then(|rest| rest.split_once(')'));
        found.push(match of {
            Some((of, _)) => format!("{word} ({of})").to_lowercase(),
            None => word.to_lowercase(),
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        check("GLOSSARY.md", text)
            .into_iter()
            .map(|fault| fault.what)
            .collect()
    }

    #[test]
    fn each_word_once_is_silent() {
        let text = "| word | is |\n|---|---|\n| **span** (of pages) | a run |\n| **span** (of time), **window** | from **x** to **x** |\n";
        assert_eq!(faults(text), [""; 0]);
    }

    #[test]
    fn a_word_with_two_entries_fires() {
        let said = faults("| **edge** | one |\n| **cell**, **Edge** | two |\n");
        assert_eq!(
            said,
            ["`edge` has an entry in line 1: say of which it speaks, or join them"]
        );
        assert_eq!(
            faults("| **a** (of b) | one |\n| **a** (of b) | two |\n").len(),
            1
        );
    }
}
