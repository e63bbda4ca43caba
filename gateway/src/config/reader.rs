//! Takes typed settings out of TOML tables and collects every fault on the way.
//!
//! A table reports the keys that nobody asked for, so no setting is ever ignored in silence. Never decides what a
//! setting means, and never repeats the value of an unknown key or a secret.

use std::cell::RefCell;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use tidegate_shared::problem::Problem;

use super::nearest::meant;
use super::placeholder;
use super::value::{self, Parsed};

/// Longest piece of a value that a fault repeats, in characters.
const SHOWN: usize = 60;

/// The faults found so far in one text.
pub(super) struct Faults<'i> {
    text: &'i str,
    /// Where each line ends, in bytes.
    ends: Vec<usize>,
    list: RefCell<Vec<Problem>>,
    running: bool,
}

/// Where a setting stands and what was written there.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    path: String,
    value: String,
    line: usize,
}

/// A setting that was given, and where.
#[derive(Clone, Debug)]
pub(super) struct Found<T> {
    pub(super) value: T,
    pub(super) place: Place,
}

impl<'i> Faults<'i> {
    pub(super) fn new(text: &'i str) -> Self {
        let ends = text.bytes().enumerate().filter(|&(_, byte)| byte == b'\n').map(|(at, _)| at).collect();
        Self { text, ends, list: RefCell::default(), running: false }
    }

    /// The same while the gateway runs: what an operator sets then may well keep everything from starting, such as a
    /// price cap below all prices, which would be a mistake in a file.
    pub(super) fn while_running(text: &'i str) -> Self {
        Self { running: true, ..Self::new(text) }
    }

    /// Whether that is so.
    pub(super) fn is_running(&self) -> bool {
        self.running
    }

    /// Records that what stands at `place` breaks `rule`.
    pub(super) fn add(&self, place: &Place, rule: impl Into<String>) {
        let Place { path, value, line } = place.clone();
        self.list.borrow_mut().push(Problem { path, value, rule: rule.into(), line });
    }

    /// The line of the byte at `offset`, from 1.
    pub(super) fn line(&self, offset: usize) -> usize {
        self.ends.partition_point(|&end| end < offset) + 1
    }

    /// All faults, in the order of the text; those that stand in no line come first.
    pub(super) fn into_problems(self) -> Vec<Problem> {
        let mut list = self.list.into_inner();
        list.sort_by_key(|problem| problem.line);
        list
    }

    fn place<T>(&self, path: String, found: &Spanned<T>) -> Place {
        let span = found.span();
        let written = self.text.get(span.clone()).unwrap_or_default();
        let mut chars = written.lines().next().unwrap_or_default().chars();
        let mut value: String = chars.by_ref().take(SHOWN).collect();
        if value.len() < written.len() {
            value.push('…');
        }
        Place { path, value: without_secrets(&value), line: self.line(span.start) }
    }
}

impl Place {
    /// A setting that was not given, in the table or at the key that stands at `self`.
    pub(super) fn missing(&self, key: &str) -> Self {
        Self { path: join(&self.path, key), value: String::new(), line: self.line }
    }

    /// The same place, for a fault that must not repeat what was written.
    pub(super) fn without_value(&self) -> Self {
        Self { value: String::new(), ..self.clone() }
    }

    /// The line, from 1; 0 when it is in no line.
    pub(super) fn line(&self) -> usize {
        self.line
    }
}

/// One table and what was asked of it.
pub(super) struct Table<'f, 'i> {
    faults: &'f Faults<'i>,
    entries: Option<&'f DeTable<'i>>,
    place: Place,
    asked: Vec<&'static str>,
}

impl<'f, 'i> Table<'f, 'i> {
    /// The table of the whole text.
    pub(super) fn root(faults: &'f Faults<'i>, entries: &'f DeTable<'i>) -> Self {
        Self { faults, entries: Some(entries), place: Place::default(), asked: Vec::new() }
    }

    /// Where the table stands.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Where the faults go.
    pub(super) fn faults(&self) -> &'f Faults<'i> {
        self.faults
    }

    /// The setting `key`, if it is given and good.
    pub(super) fn read<T>(
        &mut self,
        key: &'static str,
        parse: impl Fn(&DeValue<'_>) -> Parsed<T>,
    ) -> Option<Found<T>> {
        let (_, found) = self.entry(key)?;
        self.parse(join(&self.place.path, key), found, parse)
    }

    /// The setting `key`, or `default` where it is not given or not good.
    pub(super) fn or<T>(
        &mut self,
        key: &'static str,
        default: T,
        parse: impl Fn(&DeValue<'_>) -> Parsed<T>,
    ) -> T {
        self.read(key, parse).map_or(default, |found| found.value)
    }

    /// The setting `key`, which must be given.
    pub(super) fn required<T>(
        &mut self,
        key: &'static str,
        parse: impl Fn(&DeValue<'_>) -> Parsed<T>,
    ) -> Option<Found<T>> {
        self.demand(key);
        self.read(key, parse)
    }

    /// The command line `key`, which must be given, and in which `known` are filled in.
    pub(super) fn required_command(
        &mut self,
        key: &'static str,
        known: &[&str],
    ) -> Option<Found<Vec<Found<String>>>> {
        self.demand(key);
        self.command(key, known)
    }

    /// The command line `key`, if it is given; `known` are filled in there. Its words may be secrets and are never repeated; the
    /// first is the program.
    pub(super) fn command(&mut self, key: &'static str, known: &[&str]) -> Option<Found<Vec<Found<String>>>> {
        let found = self.elements(key, value::any_text, Place::without_value)?;
        for word in &found.value {
            if let Some(rule) = placeholder::fault(&word.value, known) {
                self.faults.add(&word.place.without_value(), rule);
            }
        }
        if found.value.first().is_none_or(|program| program.value.is_empty()) {
            self.faults.add(&found.place.without_value(), "must begin with the program to start");
            return None;
        }
        Some(found)
    }

    /// Where the setting `key` stands, if it is given; what it holds is not looked at.
    pub(super) fn given(&mut self, key: &'static str) -> Option<Place> {
        let (name, _) = self.entry(key)?;
        Some(self.faults.place(join(&self.place.path, key), name).without_value())
    }

    /// The same with what was written there, for a setting that is no secret.
    pub(super) fn written(&mut self, key: &'static str) -> Option<Place> {
        let (_, found) = self.entry(key)?;
        Some(self.faults.place(join(&self.place.path, key), found))
    }

    /// Whether a key is there that is most likely meant for `key`: [`Table::finish`] tells so.
    pub(super) fn is_misspelled(&self, key: &str) -> bool {
        let mut names = self.entries.into_iter().flatten().map(|(name, _)| name.get_ref());
        names.any(|name| name != key && meant(name, &[key]) == [key])
    }

    /// The list `key`, if it is given: its good elements.
    pub(super) fn list<T>(
        &mut self,
        key: &'static str,
        parse: impl Fn(&DeValue<'_>) -> Parsed<T>,
    ) -> Option<Found<Vec<Found<T>>>> {
        self.elements(key, parse, Place::clone)
    }

    /// The same; `shown` is what a fault of an element shows of it.
    fn elements<T>(
        &mut self,
        key: &'static str,
        parse: impl Fn(&DeValue<'_>) -> Parsed<T>,
        shown: impl Fn(&Place) -> Place,
    ) -> Option<Found<Vec<Found<T>>>> {
        let (_, found) = self.entry(key)?;
        let path = join(&self.place.path, key);
        let place = self.faults.place(path.clone(), found);
        let Some(array) = found.get_ref().as_array() else {
            self.faults.add(&shown(&place), "must be a list in brackets, such as [\"one\", \"two\"]");
            return None;
        };
        let elements = array.iter().enumerate().filter_map(|(i, one)| {
            let place = self.faults.place(format!("{path}[{i}]"), one);
            let bad = |rule| self.faults.add(&shown(&place), rule);
            parse(one.get_ref()).map_err(bad).ok().map(|value| Found { value, place: place.clone() })
        });
        let value = elements.collect();
        Some(Found { value, place })
    }

    /// The table `key`, if it is given.
    pub(super) fn table(&mut self, key: &'static str) -> Option<Table<'f, 'i>> {
        let (name, found) = self.entry(key)?;
        self.inner(join(&self.place.path, key), self.faults.line(name.span().start), found)
    }

    /// The table `key`, or an empty one where it is not given.
    pub(super) fn section(&mut self, key: &'static str) -> Table<'f, 'i> {
        let place = self.place.missing(key);
        let empty = Table { faults: self.faults, entries: None, place, asked: Vec::new() };
        self.table(key).unwrap_or(empty)
    }

    /// The tables `[[key]]`, if the key is given; `None` for each element that is no table.
    pub(super) fn tables(&mut self, key: &'static str) -> Option<Vec<Option<Table<'f, 'i>>>> {
        let (_, found) = self.entry(key)?;
        let path = join(&self.place.path, key);
        let Some(array) = found.get_ref().as_array() else {
            let place = self.faults.place(path, found).without_value();
            self.faults
                .add(&place, format!("must be a list of tables, each under [[{}]]", dotted(&place.path)));
            return None;
        };
        let each = array
            .iter()
            .enumerate()
            .map(|(i, one)| self.inner(format!("{path}[{i}]"), self.faults.line(one.span().start), one));
        Some(each.collect())
    }

    /// Every key and text of a table whose keys are free. The texts may be secrets and are never repeated.
    pub(super) fn into_secrets(
        self,
        key_rule: impl Fn(&str) -> Result<(), &'static str>,
        parse: impl Fn(&DeValue<'_>) -> Parsed<String>,
    ) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        for (name, found) in self.entries.into_iter().flatten() {
            let path = join(&self.place.path, &quoted(name.get_ref()));
            let place = self.faults.place(path, found).without_value();
            match (key_rule(name.get_ref()), parse(found.get_ref())) {
                (Ok(()), Ok(text)) => pairs.push((name.get_ref().to_string(), text)),
                (Err(rule), _) => self.faults.add(&place, rule),
                (_, Err(rule)) => self.faults.add(&place, rule),
            }
        }
        pairs
    }

    /// Every key and value of a table whose keys are free.
    pub(super) fn into_free<T>(
        self,
        key_rule: impl Fn(&str) -> Result<(), &'static str>,
        parse: impl Fn(&DeValue<'_>) -> Parsed<T>,
    ) -> Vec<(String, T)> {
        let mut pairs = Vec::new();
        for (name, found) in self.entries.into_iter().flatten() {
            let path = join(&self.place.path, &quoted(name.get_ref()));
            match key_rule(name.get_ref()) {
                Ok(()) => {
                    let value = self.parse(path, found, &parse);
                    pairs.extend(value.map(|found| (name.get_ref().to_string(), found.value)));
                }
                Err(rule) => self.faults.add(&self.faults.place(path, found).without_value(), rule),
            }
        }
        pairs
    }

    /// Reports every key that nobody asked for, with the key that was likely meant.
    pub(super) fn finish(self) {
        let unknown = self.entries.into_iter().flatten().map(|(name, _)| name);
        for name in unknown.filter(|name| !self.asked.contains(&name.get_ref().as_ref())) {
            let path = join(&self.place.path, &quoted(name.get_ref()));
            let place = self.faults.place(path, name).without_value();
            let rule = match meant(name.get_ref(), &self.asked).as_slice() {
                [] => format!("is not a setting; there are {}", self.asked.join(", ")),
                [one] => format!("is not a setting; did you mean {one}?"),
                [others @ .., last] => {
                    format!("is not a setting; did you mean {} or {last}?", others.join(", "))
                }
            };
            self.faults.add(&place, rule);
        }
    }

    fn demand(&mut self, key: &'static str) {
        if self.entry(key).is_none() {
            self.faults.add(&self.place.missing(key), "is missing");
        }
    }

    fn entry(&mut self, key: &'static str) -> Option<(&'f Spanned<DeString<'i>>, &'f Spanned<DeValue<'i>>)> {
        if !self.asked.contains(&key) {
            self.asked.push(key);
        }
        self.entries?.get_key_value(key)
    }

    fn parse<T>(
        &self,
        path: String,
        found: &Spanned<DeValue<'i>>,
        parse: impl Fn(&DeValue<'_>) -> Parsed<T>,
    ) -> Option<Found<T>> {
        let place = self.faults.place(path, found);
        match parse(found.get_ref()) {
            Ok(value) => Some(Found { value, place }),
            Err(rule) => {
                self.faults.add(&place, rule);
                None
            }
        }
    }

    fn inner(&self, path: String, line: usize, found: &'f Spanned<DeValue<'i>>) -> Option<Table<'f, 'i>> {
        let place = Place { path, value: String::new(), line };
        let DeValue::Table(entries) = found.get_ref() else {
            // A number is no secret; a text may be.
            let written = self.faults.place(place.path.clone(), found);
            let number =
                matches!(found.get_ref(), DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_));
            let place = if number { written } else { place };
            self.faults.add(&place, format!("must be a table, under [{}] or in braces", dotted(&place.path)));
            return None;
        };
        Some(Table { faults: self.faults, entries: Some(entries), place, asked: Vec::new() })
    }
}

/// `text` without what may be secret in a URL: what stands between `://` and `@`, and what follows `?`.
fn without_secrets(text: &str) -> String {
    let Some((before, rest)) = text.split_once("://") else { return text.to_owned() };
    let (rest, query) = rest.split_once('?').map_or((rest, ""), |(rest, _)| (rest, "?…"));
    let (login, rest) = rest.rsplit_once('@').map_or(("", rest), |(_, rest)| ("…@", rest));
    format!("{before}://{login}{rest}{query}")
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// A path as a TOML header shows it: without the numbers of list elements.
fn dotted(path: &str) -> String {
    let mut inside = false;
    let keep = |c: &char| {
        inside = (inside || *c == '[') && *c != ']';
        !inside && *c != ']'
    };
    path.chars().filter(keep).collect()
}

/// A key as TOML wants it written.
fn quoted(key: &str) -> String {
    let bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if bare { key.to_owned() } else { format!("{key:?}") }
}
