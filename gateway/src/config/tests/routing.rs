//! The settings of how requests find their replica.

use tidegate_shared::policy::PolicyName;

use super::*;

#[test]
fn r1_conversation_headers_are_checked() {
    let headers = |list: &str| format!("conversations = {{ headers = {list} }}");
    let names = started(&headers("[\"X-Chat\", \"thread\"]")).conversation_headers;
    assert_eq!(names, ["x-chat", "thread"]);
    assert!(started(&headers("[]")).conversation_headers.is_empty());
    for (list, part) in [
        ("[\"a\", \"A\"]", "headers[1] = \"A\": must not be named twice"),
        ("[\"x-request-id\"]", "must not be the id of a request"),
        ("[\"a b\"]", "must be the name of a header"),
        ("\"a\"", "headers = \"a\": must be a list in brackets"),
    ] {
        let got = faults_of(&headers(list));
        assert!(got.len() == 1 && got[0].contains(part), "{list}: {got:?}");
    }
}

#[test]
fn r3_a_policy_is_one_of_five() {
    for name in PolicyName::ALL {
        assert_eq!(started(&format!("policy = \"{}\"", name.as_str())).limits.policy, name);
    }
    let rule = "must be one of \"least-load\", \"two-choices\", \"prefix\", \"round-robin\", \"random\"";
    assert_eq!(
        faults_of("policy = \"fastest\""),
        [format!("line 3: deployment m: policy = \"fastest\": {rule}")]
    );
}
