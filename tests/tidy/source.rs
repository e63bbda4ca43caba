//! A Rust source read just well enough to judge its shape: comments and literals blanked, tests apart, functions
//! measured. It is no parser, and needs none: the sources are formatted by rustfmt.

/// A source file.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// Path from the root of the workspace, with `/`.
    pub path: String,
    /// Its text.
    pub text: String,
    /// Its text with comments and the insides of literals blanked; same lines, same columns.
    pub code: String,
    /// Line (from 0) at which the trailing `#[cfg(test)] mod …` begins; the number of lines if there is none.
    pub tests_at: usize,
}

/// A function: name, line (from 1), number of lines from `fn` to its closing brace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub name: String,
    pub line: usize,
    pub length: usize,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let code = blank(text);
        let lines: Vec<&str> = code.lines().collect();
        let is_tests = |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ");
        let tests_at = lines.windows(2).position(is_tests).unwrap_or(lines.len());
        Self { path: path.to_owned(), text: text.to_owned(), code, tests_at }
    }

    /// The module that it is, from the crate's `src`: `dispatch`, `route` for both `route.rs` and `route/fair.rs`.
    pub(crate) fn module(&self) -> &str {
        let inside = self.path.split_once("src/").map_or(self.path.as_str(), |(_, inside)| inside);
        let first = inside.split('/').next().unwrap_or_default();
        first.strip_suffix(".rs").unwrap_or(first)
    }

    /// Whether all of it is test code.
    pub(crate) fn is_test(&self) -> bool {
        self.path.ends_with("tests.rs") || self.path.contains("/tests/") || self.path.starts_with("tests/")
    }

    /// Its code before the tests.
    pub(crate) fn shipped(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.lines().take(self.tests_at).enumerate().map(|(at, line)| (at + 1, line))
    }

    /// Its functions, tests included, closures not.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let lines: Vec<&str> = self.code.lines().collect();
        let starts = lines.iter().enumerate().filter_map(|(at, line)| Some((at, function_name(line)?)));
        starts
            .filter_map(|(at, name)| {
                let end = closing_line(lines.get(at..)?)?;
                Some(Function { name: name.to_owned(), line: at + 1, length: end + 1 })
            })
            .collect()
    }
}

/// The name of the function that is declared in this line.
fn function_name(line: &str) -> Option<&str> {
    let at = line
        .find("fn ")
        .filter(|at| line[..*at].chars().all(|c| c.is_alphanumeric() || " ()_\"".contains(c)))?;
    let rest = &line[at + 3..];
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    (end > 0).then_some(&rest[..end])
}

/// The line of the brace that closes the first one that opens; `None` for a declaration without a body.
fn closing_line(lines: &[&str]) -> Option<usize> {
    let (mut depth, mut nested) = (0_usize, 0_usize);
    for (at, line) in lines.iter().enumerate() {
        for letter in line.chars() {
            match letter {
                '(' | '[' => nested += 1,
                ')' | ']' => nested = nested.saturating_sub(1),
                '{' => depth += 1,
                '}' if depth == 1 => return Some(at),
                '}' => depth = depth.checked_sub(1)?,
                ';' if depth == 0 && nested == 0 => return None,
                _ => {}
            }
        }
    }
    None
}

/// Blanks comments and the insides of string and character literals, keeping every line end.
fn blank(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let mut output = String::with_capacity(text.len());
    let mut at = 0;
    while at < letters.len() {
        let end = literal_end(&letters, at);
        match end {
            Some(end) => {
                let inside = letters[at..end].iter();
                output.extend(inside.map(|letter| if *letter == '\n' { '\n' } else { ' ' }));
                at = end;
            }
            None => {
                output.push(letters[at]);
                at += 1;
            }
        }
    }
    output
}

/// Where the comment or literal that begins at `at` ends; `None` if none begins there.
fn literal_end(letters: &[char], at: usize) -> Option<usize> {
    let starts = |what: &str| what.chars().enumerate().all(|(i, c)| letters.get(at + i) == Some(&c));
    let after_word = at > 0 && letters.get(at - 1).is_some_and(|c| c.is_alphanumeric() || *c == '_');
    if starts("//") {
        let length = letters[at..].iter().position(|letter| *letter == '\n');
        return Some(length.map_or(letters.len(), |length| at + length));
    }
    if starts("/*") {
        let length = letters[at..].windows(2).position(|pair| pair == ['*', '/']);
        return Some(length.map_or(letters.len(), |length| at + length + 2));
    }
    if starts("\"") {
        return Some(quoted_end(letters, at + 1, '"'));
    }
    if starts("r") && !after_word {
        let hashes = letters[at + 1..].iter().take_while(|letter| **letter == '#').count();
        return (letters.get(at + 1 + hashes) == Some(&'"'))
            .then(|| raw_end(letters, at + 2 + hashes, hashes));
    }
    let is_char = starts("'\\") || (starts("'") && letters.get(at + 2) == Some(&'\''));
    is_char.then(|| quoted_end(letters, at + 1, '\''))
}

fn quoted_end(letters: &[char], mut at: usize, quote: char) -> usize {
    while let Some(letter) = letters.get(at) {
        match letter {
            '\\' => at += 2,
            found if *found == quote => return at + 1,
            _ => at += 1,
        }
    }
    letters.len()
}

fn raw_end(letters: &[char], start: usize, hashes: usize) -> usize {
    let closes = |at: &usize| {
        letters[*at] == '"' && letters[at + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes
    };
    (start..letters.len()).find(closes).map_or(letters.len(), |at| at + 1 + hashes)
}

#[test]
fn blanks_what_is_no_code_and_keeps_the_lines() {
    let text = "let a = \"{ \\\" }\"; // {\nlet b = '{'; let c: &'a str = r#\"}\"x\"#;\n/* { \n */ d['\\'']";
    let code = blank(text);
    assert!(!code.contains(['{', '}', '"', 'x']), "{code}");
    assert!(code.contains("&'a str"), "{code}");
    assert_eq!(code.lines().count(), text.lines().count());
}

#[test]
fn measures_functions_and_finds_the_tests() {
    let text = "//! x\n\npub(crate) async fn one(\n    a: [u8; 2],\n) -> u8 {\n    if true { 1 } else { 2 }\n}\n\
                trait T {\n    fn two();\n    fn three() {}\n}\n#[cfg(test)]\nmod tests;\n";
    let source = Source::new("gateway/src/route/fair.rs", text);
    let found: Vec<_> = source.functions().into_iter().map(|f| (f.name, f.line, f.length)).collect();
    assert_eq!(found, [("one".to_owned(), 3, 5), ("three".to_owned(), 10, 1)]);
    assert_eq!(source.tests_at, 11);
    assert_eq!(source.module(), "route");
}
