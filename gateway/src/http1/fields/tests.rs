//! Fields are kept, changed and written as they came.

use proptest::prelude::*;

use super::*;

fn fields(lines: &[(&str, &str)]) -> Fields {
    let mut fields = Fields::default();
    lines.iter().for_each(|(name, value)| fields.add(name.as_bytes(), value.as_bytes()));
    fields
}

/// Fields of lines that are parted and end in any way, as a parser finds them in a head.
fn found(lines: &[(String, &str, String, &str)]) -> Fields {
    let mut head = String::from("GET / HTTP/1.1\r\n");
    let mut places = Vec::new();
    for (name, part, value, end) in lines {
        let at = head.len();
        head.extend([name, *part, value, *end]);
        let value_at = at + name.len() + part.len();
        places.push((at..at + name.len(), value_at..value_at + value.len()));
    }
    head.push_str("\r\n");
    let head = head.as_bytes();
    Fields::found(head, places.into_iter().map(|(name, value)| (&head[name], &head[value])))
}

proptest! {
    #[test]
    fn h5_fields_that_are_found_in_a_head_are_those_that_are_added_one_by_one(
        lines in prop::collection::vec((
            prop_oneof!["[A-Za-z0-9_-]{1,24}", Just("Host".to_owned()), Just("X-API-Key".to_owned())],
            prop::sample::select(vec![": ", ":", ":\t", ":  "]),
            prop_oneof!["[!-~]{1,12}", "[!-~][ -~]{0,9}[!-~]", Just(String::new())],
            prop::sample::select(vec!["\r\n", "\n", " \r\n", "\t\n"]),
        ), 0..6),
    ) {
        let found = found(&lines);
        let mut added = Fields::default();
        lines.iter().for_each(|(name, _, value, _)| added.add(name.as_bytes(), value.as_bytes()));
        for except in [Names::NONE, Names::of(&[Name::Host])] {
            prop_assert_eq!(written(&found, except), written(&added, except));
        }
        prop_assert!(found.iter().eq(added.iter()));
        let lowered = |(name, ..): &(String, _, _, _)| name.to_ascii_lowercase().into_bytes();
        prop_assert!(found.iter().map(|(name, _)| name.to_vec()).eq(lines.iter().map(lowered)));
        prop_assert_eq!((found.known, found.get(Name::Host)), (added.known, added.get(Name::Host)));
    }
}

fn written(fields: &Fields, except: Names) -> String {
    let mut into = Vec::new();
    fields.write_except(&mut into, except);
    String::from_utf8(into).expect("text")
}

#[test]
fn h5_fields_keep_their_order_whatever_the_case_of_their_names() {
    let mut fields = fields(&[("X-A", "1"), ("Host", "h"), ("x-a", "2"), ("HOST", ""), ("te", "x")]);
    assert_eq!(written(&fields, Names::NONE), "x-a: 1\r\nhost: h\r\nx-a: 2\r\nhost: \r\nte: x\r\n");
    assert_eq!(fields.named("x-a"), Some(&b"1"[..]));
    assert_eq!(fields.all(Name::Host).collect::<Vec<_>>(), [&b"h"[..], b""]);
    assert_eq!(written(&fields, Names::of(&[Name::Host, Name::Te])), "x-a: 1\r\nx-a: 2\r\n");
    fields.remove_named(b"X-a");
    fields.set(Name::Te, "y");
    assert_eq!(written(&fields, Names::NONE), "host: h\r\nhost: \r\nte: y\r\n");
    fields.remove_named(b"tE");
    fields.remove(Names::of(&[Name::Host, Name::Date]));
    assert!(fields.is_empty() && !fields.has(Name::Te) && !fields.has(Name::Host));
    assert_eq!((fields.get(Name::Te), fields.get(Name::Host)), (None, None));
}

#[test]
fn h5_a_head_that_is_done_leaves_nothing_to_the_next_one() {
    drop(fields(&[("authorization", "Bearer sk"), ("x-a", "1")]));
    let next = fields(&[("x-b", "2")]);
    assert!(!next.has(Name::Authorization) && next.named("x-a").is_none());
    assert_eq!(written(&next, Names::NONE), "x-b: 2\r\n");
}

#[test]
fn h5_fields_are_the_same_on_the_side_of_http2() {
    let map = fields(&[("X-A", "1"), ("host", "h\u{e9}"), ("x-a", "2")]).to_map();
    assert_eq!(map.get_all("x-a").iter().collect::<Vec<_>>(), ["1", "2"]);
    let back = Fields::from(&map);
    assert_eq!(back.get(Name::Host), Some("h\u{e9}".as_bytes()));
    assert_eq!((text(b"a \t~"), text("\u{e9}".as_bytes()), text(b"\x7f")), (Some("a \t~"), None, None));
}
