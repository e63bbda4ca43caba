//! Finds placeholders of command lines that are misspelled. Words in braces that resemble none of those that are filled
//! in belong to the program: a template, or a line of awk.

use super::nearest::meant;

/// Longest word in braces that is looked at, in bytes.
const LONGEST: usize = 32;

/// What is wrong with `text`, in which each of `known` is filled in.
pub(super) fn fault(text: &str, known: &[&str]) -> Option<String> {
    text.match_indices('{').find_map(|(at, _)| {
        let (before, after) = (text.get(..at)?, text.get(at + 1..)?);
        let (word, _) = after.split_once('}')?;
        // `${name}` is a variable of a shell, `{{name}}` a template.
        let foreign = before.ends_with(['$', '{']) || !(2..=LONGEST).contains(&word.len());
        let strange = |letter: char| !(letter.is_ascii_alphabetic() || letter == '_' || letter == '-');
        if foreign || known.contains(&word) || word.contains(strange) {
            return None;
        }
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
    }
}
