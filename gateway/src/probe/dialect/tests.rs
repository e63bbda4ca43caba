//! Each dialect on pages as its engine writes them, and every dialect on pages that nobody should write.

use bytes::Bytes;
use proptest::prelude::*;
use tidegate_shared::replica::EngineReport;
use tidegate_shared::request::Tokens;

use super::{Dialect, LOOK, METRICS, Pages, Reading, llamacpp, tgi, trtllm};

const ALL: [Dialect; 9] = [
    Dialect::None,
    Dialect::Vllm,
    Dialect::Sglang,
    Dialect::LlamaCpp,
    Dialect::Tgi,
    Dialect::TrtLlm,
    Dialect::TrtLlmServe,
    Dialect::TrtLlmIterations,
    Dialect::Tei,
];

/// Part of the page of a real vLLM 0.32.0 at rest, after 12 requests.
const VLLM: &str = include_str!("fixtures/vllm-0.32.0.txt");

fn pages(pages: &[(&'static str, &str)]) -> Pages {
    Pages(pages.iter().map(|(path, text)| (*path, Bytes::copy_from_slice(text.as_bytes()))).collect())
}

/// Recognises the dialect and reads the figures; there must be no errors.
fn good(dialect: Dialect, of: &[(&'static str, &str)]) -> EngineReport {
    let pages = pages(of);
    assert_eq!(Dialect::of(&pages), dialect);
    let Reading { report, errors } = dialect.read(&pages);
    assert_eq!(errors, 0, "{report:?}");
    report
}

fn vllm(text: &str) -> Reading {
    Dialect::Vllm.read(&pages(&[(METRICS, text)]))
}

/// Running, waiting, tokens used, tokens there are.
type Load = (Option<u32>, Option<u32>, Option<u64>, Option<u64>);

fn load(report: &EngineReport) -> Load {
    (report.running, report.waiting, report.kv_used.map(|t| t.0), report.kv_capacity.map(|t| t.0))
}

#[test]
fn g2_a_real_page_of_vllm_at_rest_tells_zeros_that_are_known() {
    let report = good(Dialect::Vllm, &[(METRICS, VLLM)]);
    assert_eq!(load(&report), (Some(0), Some(0), Some(0), Some(4_194_304)));
    assert_eq!((report.prefix_hits, report.prefix_queries, report.slots), (Some(1152), Some(2676), None));
}

#[test]
fn g2_vllm_under_its_older_names_has_capacity_from_blocks() {
    let report = good(
        Dialect::Vllm,
        &[(
            METRICS,
            "vllm:num_requests_running{model_name=\"m\"} 3.0\n\
         vllm:num_requests_waiting{model_name=\"m\"} 1.0\n\
         vllm:gpu_cache_usage_perc{model_name=\"m\"} 0.25\n\
         vllm:gpu_prefix_cache_queries_total{model_name=\"m\"} 100.0\n\
         vllm:gpu_prefix_cache_hits_total{model_name=\"m\"} 40.0\n\
         vllm:cache_config_info{block_size=\"16\",num_cpu_blocks=\"None\",num_gpu_blocks=\"1000\"} 1.0\n",
        )],
    );
    assert_eq!(load(&report), (Some(3), Some(1), Some(4000), Some(16_000)));
    assert_eq!((report.prefix_hits, report.prefix_queries), (Some(40), Some(100)));
}

#[test]
fn g2_several_engines_of_vllm_are_summed_each_with_its_own_capacity() {
    let page = "vllm:num_requests_running{engine=\"0\"} 3\nvllm:num_requests_running{engine=\"1\"} 2\n\
         vllm:num_requests_waiting{engine=\"0\"} 0\nvllm:num_requests_waiting{engine=\"1\"} 5\n\
         vllm:kv_cache_usage_perc{engine=\"0\"} 0.5\nvllm:kv_cache_usage_perc{engine=\"1\"} 1\n";
    let sizes = "vllm:cache_config_info{engine=\"0\",block_size=\"16\",num_gpu_blocks=\"10\"} 1\n\
         vllm:cache_config_info{engine=\"1\",block_size=\"16\",num_gpu_blocks=\"20\"} 1\n";
    let report = good(Dialect::Vllm, &[(METRICS, &[page, sizes].concat())]);
    assert_eq!(load(&report), (Some(5), Some(5), Some(80 + 320), Some(480)));
    // One size for all.
    let sizes = "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"10\"} 1\n";
    let report = good(Dialect::Vllm, &[(METRICS, &[page, sizes].concat())]);
    assert_eq!(load(&report), (Some(5), Some(5), Some(80 + 160), Some(320)));
    // The size of one is not known: neither is the sum.
    let sizes = "vllm:cache_config_info{engine=\"0\",block_size=\"16\",num_gpu_blocks=\"10\"} 1\n";
    let report = good(Dialect::Vllm, &[(METRICS, &[page, sizes].concat())]);
    assert_eq!(load(&report), (Some(5), Some(5), None, None));
}

#[test]
fn g2_sglang_of_the_first_generation_tells_tokens_and_no_capacity() {
    let report = good(
        Dialect::Sglang,
        &[(
            METRICS,
            "sglang:prompt_tokens_total{model_name=\"m\"} 8.128902e+06\n\
         sglang:cached_tokens_total{model_name=\"m\"} 1000.0\n\
         sglang:token_usage{model_name=\"m\"} 0.28\n\
         sglang:num_running_reqs{model_name=\"m\"} 161.0\n\
         sglang:num_used_tokens{model_name=\"m\"} 123859.0\n\
         sglang:num_queue_reqs{model_name=\"m\"} 2826.0\n",
        )],
    );
    assert_eq!(load(&report), (Some(161), Some(2826), Some(123_859), None));
    assert_eq!((report.prefix_hits, report.prefix_queries), (Some(1000), Some(8_128_902)));
}

#[test]
fn g2_ranks_of_sglang_are_summed_where_they_are_different_engines() {
    // Two ranks of data parallelism, each of two of tensor parallelism that tell the same; one series more by priority.
    let mut page = String::new();
    for (dp, running, usage) in [(0, 4, 0.5), (1, 1, 0.25)] {
        for tp in 0..2 {
            let labels = format!("dp_rank=\"{dp}\",model_name=\"m\",priority=\"\",tp_rank=\"{tp}\"");
            page += &format!(
                "sglang_num_running_reqs{{{labels}}} {running}\nsglang_num_queue_reqs{{{labels}}} {dp}\n\
                 sglang_token_usage{{{labels}}} {usage}\nsglang_max_total_num_tokens{{{labels}}} 1000\n"
            );
        }
        page += &format!("sglang_num_running_reqs{{dp_rank=\"{dp}\",priority=\"7\"}} 1\n");
    }
    let report = good(Dialect::Sglang, &[(METRICS, &page)]);
    assert_eq!(load(&report), (Some(5), Some(1), Some(750), Some(2000)));
}

const LLAMA: &str = "llamacpp:prompt_tokens_total 72\nllamacpp:prompt_tokens_cached_total 28\n\
    llamacpp:requests_processing 2\nllamacpp:requests_deferred 4\n";

#[test]
fn g2_llamacpp_tells_what_each_slot_holds() {
    let slots = r#"[{"id":0,"n_ctx":2048,"is_processing":true,"n_prompt_tokens":57,"n_prompt_tokens_processed":36,
          "n_prompt_tokens_cache":0,"next_token":[{"n_remain":379,"n_decoded":21}]},
         {"id":1,"n_ctx":2048,"is_processing":true,"n_prompt_tokens":100,"n_prompt_tokens_processed":90,
          "n_prompt_tokens_cache":10,"next_token":{"n_decoded":5}},
         {"id":2,"n_ctx":2048,"is_processing":false,"n_prompt_tokens":900}]"#;
    let report = good(Dialect::LlamaCpp, &[(METRICS, LLAMA), (llamacpp::SLOTS, slots)]);
    assert_eq!(load(&report), (Some(2), Some(4), Some(57 + 105), Some(3 * 2048)));
    assert_eq!((report.slots, report.prefix_hits, report.prefix_queries), (Some(3), Some(28), Some(100)));
    // Without --metrics there are the slots.
    let report = good(Dialect::LlamaCpp, &[(llamacpp::SLOTS, slots)]);
    assert_eq!(load(&report), (Some(2), None, Some(162), Some(6144)));
    // As of 2024.
    let old = r#"[{"n_ctx":512,"state":1,"n_past":30},{"n_ctx":512,"state":0,"n_past":90}]"#;
    let report = good(Dialect::LlamaCpp, &[(METRICS, LLAMA), (llamacpp::SLOTS, old)]);
    assert_eq!(load(&report), (Some(2), Some(4), Some(30), Some(1024)));
    // Slots that do not tell.
    let mute = r#"[{"n_ctx":512,"is_processing":true}]"#;
    let report = good(Dialect::LlamaCpp, &[(METRICS, LLAMA), (llamacpp::SLOTS, mute)]);
    assert_eq!(load(&report), (Some(2), Some(4), None, Some(512)));
}

#[test]
fn g2_llamacpp_without_slots_has_its_capacity_from_props() {
    let props = r#"{"default_generation_settings":{"n_ctx":2048},"total_slots":2}"#;
    let report = good(Dialect::LlamaCpp, &[(METRICS, LLAMA), (llamacpp::PROPS, props)]);
    assert_eq!(load(&report), (Some(2), Some(4), None, Some(4096)));
    assert_eq!(report.slots, Some(2));
}

#[test]
fn g2_tgi_holds_what_it_has_promised() {
    let page = "tgi_batch_current_size 8\ntgi_queue_size 3\ntgi_batch_current_max_tokens 2048\n";
    let info = r#"{"max_batch_total_tokens":32000,"max_batch_size":null,"max_concurrent_requests":128}"#;
    let report = good(Dialect::Tgi, &[(METRICS, page), (tgi::INFO, info)]);
    assert_eq!(load(&report), (Some(8), Some(3), Some(2048), Some(32_000)));
    let report = good(Dialect::Tgi, &[(METRICS, page), (tgi::INFO, "{}")]);
    assert_eq!(load(&report), (Some(8), Some(3), Some(2048), None));
}

#[test]
fn g2_tei_tells_its_queue() {
    let info = r#"{"max_batch_tokens":16384,"max_batch_requests":32}"#;
    let report = good(Dialect::Tei, &[(METRICS, "te_queue_size 7\n"), (tgi::INFO, info)]);
    assert_eq!((load(&report), report.slots), ((None, Some(7), None, None), Some(32)));
}

#[test]
fn g2_trtllm_tells_blocks() {
    let labels = "{engine_type=\"trtllm\",model_name=\"m\"}";
    let page: String = [
        ("num_requests_running", 5),
        ("num_requests_waiting", 2),
        ("max_num_active_requests", 64),
        ("kv_cache_max_blocks", 100),
        ("kv_cache_tokens_per_block", 32),
        ("prompt_tokens_total", 90),
        ("prompt_cached_tokens_total", 30),
    ]
    .iter()
    .map(|(name, value)| format!("trtllm_{name}{labels} {value}\n"))
    .collect();
    let page = page + "trtllm_kv_cache_utilization" + labels + " 0.25\n";
    // `/metrics` is JSON there, and takes what it tells away.
    let of = [(METRICS, "[]"), (trtllm::PROMETHEUS, page.as_str())];
    let report = good(Dialect::TrtLlmServe, &of);
    assert_eq!(load(&report), (Some(5), Some(2), Some(800), Some(3200)));
    assert_eq!((report.slots, report.prefix_hits, report.prefix_queries), (Some(64), Some(30), Some(90)));
}

#[test]
fn g2_trtllm_without_prometheus_tells_its_newest_iteration() {
    let page = r#"[{"numActiveRequests":9},
        {"numActiveRequests":2,"numQueuedRequests":3,"maxNumActiveRequests":8,
         "kvCacheStats":{"maxNumBlocks":100,"usedNumBlocks":25,"tokensPerBlock":32}}]"#;
    let report = good(Dialect::TrtLlmIterations, &[(METRICS, page)]);
    assert_eq!(load(&report), (Some(2), Some(3), Some(800), Some(3200)));
    assert_eq!(report.slots, Some(8));
    assert_eq!(good(Dialect::TrtLlmIterations, &[(METRICS, "[]")]), EngineReport::default());
}

#[test]
fn g2_trtllm_as_dynamo_writes_it() {
    let page = "trtllm:num_requests_running{engine=\"0\"} 4\ntrtllm:num_requests_waiting{engine=\"0\"} 2\n\
         trtllm:kv_cache_usage_perc{engine=\"0\"} 0.0390625\n";
    let report = good(Dialect::TrtLlm, &[(METRICS, page)]);
    assert_eq!(load(&report), (Some(4), Some(2), None, None));
}

#[test]
fn g2_pages_of_nobody_known_are_of_no_dialect() {
    for page in
        ["", "<html>\n", "python_info 1\n", "{\"a\":1}", "[{\"a\":1}]", "te_other 1\n", "vllm:other 1\n"]
    {
        let pages = pages(&[(METRICS, page)]);
        assert_eq!(Dialect::of(&pages), Dialect::None, "{page}");
        assert_eq!(Dialect::is_garbage(&pages), !page.ends_with("1\n"), "{page}");
    }
    assert_eq!(Dialect::of(&Pages::default()), Dialect::None);
    assert!(!Dialect::is_garbage(&Pages::default()));
    assert_eq!(Dialect::None.read(&pages(&[(METRICS, VLLM)])), Reading::default());
}

#[test]
fn c_051_a_figure_that_cannot_be_true_is_unknown_and_counted_and_spoils_no_other() {
    let with = |name: &str, value: &str| {
        let labels = "{engine=\"0\",model_name=\"tiny\"}";
        let page = VLLM.replace(&format!("{name}{labels} 0.0"), &format!("{name}{labels} {value}"));
        assert_ne!(page, VLLM);
        vllm(&page)
    };
    for bad in ["NaN", "+Inf", "-Inf", "-1", "1e308", "2.5", "4000000", "0x10", "four"] {
        let Reading { report, errors } = with("num_requests_running", bad);
        assert_eq!((load(&report), errors), ((None, Some(0), Some(0), Some(4_194_304)), 1), "{bad}");
    }
    for bad in ["NaN", "+Inf", "-1", "1.5", "1e308"] {
        let Reading { report, errors } = with("kv_cache_usage_perc", bad);
        assert_eq!((load(&report), errors), ((Some(0), Some(0), None, Some(4_194_304)), 1), "{bad}");
    }
}

#[test]
fn c_051_a_page_that_cannot_be_read_is_unknown_and_counted() {
    for page in
        ["", "<html><body>vllm:num_requests_running 4</body></html>\n", "vllm:num_requests_running{", "\0"]
    {
        assert_eq!(vllm(page), Reading { report: EngineReport::default(), errors: 1 }, "{page:?}");
    }
    for dialect in ALL.into_iter().filter(|dialect| *dialect != Dialect::None) {
        assert_eq!(dialect.read(&Pages::default()), Reading { report: EngineReport::default(), errors: 1 });
    }
}

#[test]
fn c_051_more_used_than_there_is_and_room_for_nothing_are_no_figures() {
    let page = "tgi_batch_current_size 8\ntgi_batch_current_max_tokens 2048\n";
    for (capacity, expected) in [("1024", Some(Tokens(1024))), ("0", None)] {
        let info = format!("{{\"max_batch_total_tokens\":{capacity}}}");
        let Reading { report, errors } = Dialect::Tgi.read(&pages(&[(METRICS, page), (tgi::INFO, &info)]));
        assert_eq!((report.running, report.kv_capacity, errors), (Some(8), expected, 1));
        assert_eq!(report.kv_used, if capacity == "0" { Some(Tokens(2048)) } else { None });
    }
}

/// Bounds that every figure keeps, whatever was read.
fn within_bounds(report: &EngineReport) {
    // At most 10,000 series of a million each.
    let most = 10_000 * 1_000_000;
    for count in [report.running, report.waiting, report.slots].into_iter().flatten() {
        assert!(u64::from(count) <= most);
    }
    for tokens in [report.kv_used, report.kv_capacity].into_iter().flatten() {
        assert!(tokens.0 <= 1 << 61);
    }
    if let (Some(used), Some(capacity)) = (report.kv_used, report.kv_capacity) {
        assert!(used <= capacity && capacity > Tokens(0));
    }
    for counter in [report.prefix_hits, report.prefix_queries].into_iter().flatten() {
        assert!(counter <= 1 << 55);
    }
}

fn read_all(text: &[u8]) {
    let paths = LOOK.into_iter().chain([llamacpp::PROPS, tgi::INFO]);
    let pages = Pages(paths.map(|path| (path, Bytes::copy_from_slice(text))).collect());
    let _ = Dialect::of(&pages);
    let _ = Dialect::is_garbage(&pages);
    for dialect in ALL {
        within_bounds(&dialect.read(&pages).report);
    }
}

/// Text made of the pieces that pages are made of, in any order.
fn soup() -> impl Strategy<Value = Vec<u8>> {
    let pieces: Vec<&[u8]> = vec![
        b"vllm:",
        b"sglang_",
        b"llamacpp:",
        b"tgi_",
        b"te_",
        b"trtllm:",
        b"num_requests_running",
        b"num_requests_waiting",
        b"kv_cache_usage_perc",
        b"cache_config_info",
        b"num_running_reqs",
        b"queue_size",
        b"batch_current_max_tokens",
        b"kv_cache_max_blocks",
        b"kv_cache_tokens_per_block",
        b"token_usage",
        b"max_total_num_tokens",
        b"num_used_tokens",
        b"{",
        b"}",
        b"\"",
        b"\\",
        b"=",
        b",",
        b" ",
        b"\n",
        b"engine=\"0\"",
        b"num_gpu_blocks=\"1099511627776\"",
        b"block_size=\"16\"",
        b"1",
        b"0.5",
        b"-1",
        b"NaN",
        b"+Inf",
        b"1e308",
        b"1e12",
        b"\xff",
        b"[{\"n_ctx\":",
        b"\"is_processing\":true",
        b"}]",
        b"null",
        b"18446744073709551615",
    ];
    prop::collection::vec(prop::sample::select(pieces), 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn c_051_no_bytes_panic_or_give_a_figure_out_of_bounds(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        read_all(&bytes);
    }

    #[test]
    fn c_051_no_soup_of_pieces_does(bytes in soup()) {
        read_all(&bytes);
    }

    #[test]
    fn c_051_no_value_does(value in any::<f64>(), other in any::<i64>()) {
        let mut page = String::new();
        for (family, name) in [
            ("vllm:", "num_requests_running"), ("vllm:", "kv_cache_usage_perc"), ("sglang:", "num_used_tokens"),
            ("sglang:", "max_total_num_tokens"), ("trtllm_", "kv_cache_max_blocks"), ("tgi_", "batch_current_max_tokens"),
            ("trtllm_", "kv_cache_tokens_per_block"), ("trtllm_", "kv_cache_utilization"), ("te_", "queue_size"),
        ] {
            page += &format!("{family}{name} {value:e}\n{family}{name}{{engine=\"1\"}} {other}\n");
        }
        page += &format!("vllm:cache_config_info{{block_size=\"{other}\",num_gpu_blocks=\"{value}\"}} 1\n");
        read_all(page.as_bytes());
        read_all(format!("[{{\"n_ctx\":{other},\"n_past\":{other},\"state\":1}}]").as_bytes());
        read_all(format!("{{\"max_batch_total_tokens\":{other},\"total_slots\":{other}}}").as_bytes());
    }

    /// A page that was cut anywhere gives figures of the whole page or unknown ones.
    #[test]
    fn c_051_a_cut_page_tells_nothing_false(cut in 0..VLLM.len()) {
        let whole = vllm(VLLM).report;
        let part = vllm(&VLLM[..cut]).report;
        prop_assert!(part.running.is_none() || part.running == whole.running);
        prop_assert!(part.waiting.is_none() || part.waiting == whole.waiting);
        prop_assert!(part.kv_capacity.is_none() || part.kv_capacity == whole.kv_capacity);
        prop_assert!(part.prefix_queries.is_none() || part.prefix_queries == whole.prefix_queries);
    }
}
