//! How the answers of `tidegate why` look.

use super::*;

const SAMPLE: &str = r#"{"deployment":"chat","now":"2 replicas ready, 1 on the way, 1 to 2 allowed; 97 in flight, 12 queued, the oldest for 1.5 s","findings":[
 {"line":"starts_fail","question":"Replicas do not start","standing":"now","text":"3 starts in a row have failed, the next is tried in 9 s; chat-3 did not start: the engine ended (exit status: 3)","details":["loading weights.gguf","error: tensor 'output.weight' is not in the file, which may be cut off\u001b[2J"],"advice":"read the engine's last lines; it is tried again by itself, after pauses of up to 5 min"},
 {"line":"at_max","question":"Stuck at max while queues grow","standing":"now","text":"max is 2 and 2 are there, while 109 in progress (12 of them queued) need 4 replicas; 12 requests wait, the oldest for 1.5 s","details":[],"advice":"raise max; each one more may cost up to $1.00/h"},
 {"line":"no_credit","question":"Scale-up stopped while credit is empty","standing":"ahead","text":"$1.35 of credit is left, $60.00 spent here; it lasts 30 min at $2.70/h for all deployments","details":[],"advice":"raise the credit before it is used up","new_field":1},
 {"line":"wont_drop","question":"Won't drop below the replicas there are","standing":"no","text":"min is 2, and 2 are there","details":[],"advice":null}]}"#;

fn at(width: usize, all: bool) -> String {
    let answer: WhyAnswer = serde_json::from_str(SAMPLE).expect("the documented shape");
    render(&answer, all, Style { width, terminal: true, ..Style::PLAIN })
}

#[test]
fn e2_every_answer_reads_well_at_60_columns() {
    let expected = "\
chat  2 replicas ready, 1 on the way, 1 to 2 allowed; 97 in
      flight, 12 queued, the oldest for 1.5 s

  now    Replicas do not start
         3 starts in a row have failed, the next is tried in
         9 s; chat-3 did not start: the engine ended (exit
         status: 3)
           loading weights.gguf
           error: tensor 'output.weight' is not in the
             file, which may be cut off [2J
         do: read the engine's last lines; it is tried again
             by itself, after pauses of up to 5 min

  now    Stuck at max while queues grow
         max is 2 and 2 are there, while 109 in progress (12
         of them queued) need 4 replicas; 12 requests wait,
         the oldest for 1.5 s
         do: raise max; each one more may cost up to $1.00/h

  ahead  Scale-up stopped while credit is empty
         $1.35 of credit is left, $60.00 spent here; it
         lasts 30 min at $2.70/h for all deployments
         do: raise the credit before it is used up

  no     Won't drop below the replicas there are
         min is 2, and 2 are there
";
    assert_eq!(at(60, true), expected);
}

#[test]
fn e2_no_line_is_longer_than_the_terminal_and_what_is_not_so_is_only_counted() {
    for width in [60, 80, 100] {
        let text = at(width, false);
        assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
        assert!(text.ends_with("\n\n1 more question has the answer no: --all\n"), "{text}");
        assert!(!text.contains("Won't drop") && !text.contains('\u{1b}'), "{text}");
    }
}

#[test]
fn e2_what_a_removed_deployment_left_running_is_told_of_the_gateway_with_what_settles_it() {
    let left = "big-7 (slurm) was left running by an earlier run, and big is not in the configuration any more: the gateway \
                cannot stop it. Put big back and restart, and it is taken over, or stop it by hand and then run `rm big/kind`";
    let expected = "\
the gateway  big-7 (slurm) was left running by an earlier
             run, and big is not in the configuration any
             more: the gateway cannot stop it. Put big back
             and restart, and it is taken over, or stop it by
             hand and then run `rm big/kind`
";
    assert_eq!(gateway(left, Style { width: 61, ..Style::PLAIN }), expected);
}
