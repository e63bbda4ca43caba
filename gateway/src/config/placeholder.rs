//! Finds placeholders of command lines that are misspelled. Words in braces that resemble none of those that are filled
//! in belong to the program: a template, or a line of awk.

use super::nearest::meant;

/// Longest word in braces that is looked at, in bytes.
const LONGEST: usize = 32;

/// The words in braces in `text`, each after what stands before it, that a person may have meant to be filled in.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices('{').filter_map(|(at, _)| {
        let (before, after) = (text.get(..at)?, text.get(at + 1..)?);
        let (word, _) = after.split_once('}')?;
        // `${name}` is a variable of a shell, `{{name}}` a template.
        let foreign = before.ends_with(['$', '{']) || !(2..=LONGEST).contains(&word.len());
        let strange = |letter: char| !(letter.is_ascii_alphabetic() || letter == '_' || letter == '-');
        (!foreign && !word.contains(strange)).then_some(word)
    })
}

/// A word in braces in `text` that resembles none of `known`; `None` in a text with spaces, which is likely a script.
pub(crate) fn stranger<'a>(text: &'a str, known: &[&str]) -> Option<&'a str> {
    words(text).find(|word| !known.contains(word)).filter(|_| !text.contains(char::is_whitespace))
}

/// What is wrong with `text`, in which each of `known` is filled in.
pub(super) fn fault(text: &str, known: &[&str]) -> Option<String> {
    words(text).filter(|word| !known.contains(word)).find_map(|word| {
        let meant = meant(word, known);
        let meant = meant.first()?;
        Some(format!("holds {{{word}}}, which nothing stands for; did you mean {{{meant}}}?"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h4_a_slip_is_told_and_what_belongs_to_the_program_is_not() {
        let known = ["id", "name", "deployment", "owner", "offer"];
        for (text, meant) in [
            ("--name={nam}", "name"),
            ("{Name}", "name"),
            ("{id}/{deploymnet}", "deployment"),
            ("{owners}", "owner"),
        ] {
            let fault = fault(text, &known).expect(text);
            assert!(fault.ends_with(&format!("did you mean {{{meant}}}?")), "{text}: {fault}");
        }
        for text in
            ["{name}", "{port}", "${nam}", "{{nam}}", "{}", "{print}", "{i}", "{nam", "{a: 1}", "nam}"]
        {
            assert_eq!(fault(text, &known), None, "{text}");
        }
        for (text, word) in
            [("--at={nope}", Some("nope")), ("{name}", None), ("awk {print}", None), ("${nope}", None)]
        {
            assert_eq!(stranger(text, &known), word, "{text}");
        }
    }
}
