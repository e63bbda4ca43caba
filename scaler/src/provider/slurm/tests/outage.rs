//! Slurm, or the way to it, is away: the fleet is held, nothing is lost and nothing doubled (C2, C-005).

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use super::super::left;
use super::super::reply::Job;
use super::*;

/// Waits until the list, or the error in place of one, is as wanted.
async fn told(provider: &SlurmProvider, wanted: impl Fn(&Result<Vec<Instance>, ProviderError>) -> bool) {
    let mut last = None;
    let looked = async {
        loop {
            let list = last.insert(provider.list().await);
            if wanted(list) {
                return;
            }
            provider.changed().await;
        }
    };
    let looked = tokio::time::timeout(std::time::Duration::from_secs(60), looked).await;
    assert!(looked.is_ok(), "never as wanted: {last:?}");
}

async fn says(provider: &SlurmProvider, text: &str) {
    told(provider, |list| matches!(list, Err(error) if error.to_string().contains(text))).await;
}

#[tokio::test]
async fn c2_a_controller_that_restarts_changes_nothing() {
    let Some(mut cluster) = Cluster::start() else { return };
    let state = tempfile::tempdir().unwrap();
    let provider = open(state.path(), spec(&cluster, by_socket(&cluster), "chat", serving()));
    start(&provider).await;
    start(&provider).await;
    let before = until(&provider, |list| up(list, 2)).await;
    cluster.tell("stop slurmctld");
    says(&provider, "provider slurm does not answer: Slurm says: ").await;
    cluster.tell("start slurmctld");
    told(&provider, |list| list.as_ref() == Ok(&before)).await;
    cluster.tell("stop socket");
    says(&provider, "cannot connect to unix:").await;
    let error = provider.stop(before[0].id).await.unwrap_err();
    assert!(error.to_string().contains("No such file or directory"), "{error}");
    let error = provider.start(provider.next_id(), offer(&provider)).await.unwrap_err();
    assert!(error.to_string().contains("No such file or directory"), "{error}");
    cluster.tell("start socket");
    told(&provider, |list| list.as_ref() == Ok(&before)).await;
    assert_eq!(cluster.jobs(), ["tidegate:chat-1 RUNNING", "tidegate:chat-2 RUNNING"]);
}

#[tokio::test]
async fn c2_a_token_that_expired_is_named_and_a_new_one_is_taken_up() {
    let Some(mut cluster) = Cluster::start() else { return };
    let state = tempfile::tempdir().unwrap();
    cluster.tell("token 1");
    let provider = open(state.path(), spec(&cluster, by_token(&cluster), "chat", serving()));
    says(&provider, &format!("; the token in {} expired ", cluster.token().display())).await;
    cluster.tell("token 3600");
    told(&provider, |list| list.as_ref() == Ok(&Vec::new())).await;
    std::fs::write(cluster.token(), "nonsense").unwrap();
    says(&provider, "does not accept who asks (HTTP 401)").await;
}

#[tokio::test]
async fn c005_c2_a_token_of_another_user_is_refused_and_not_one_job_is_taken_for_gone() {
    let Some(cluster) = Cluster::start() else { return };
    let state = tempfile::tempdir().unwrap();
    let provider = open(state.path(), spec(&cluster, by_token(&cluster), "chat", serving()));
    let id = start(&provider).await;
    let before = until(&provider, |list| up(list, 1)).await;
    let ours = std::fs::read_to_string(cluster.token()).unwrap();
    // What it says of itself is `{"exp":4102444800,"sun":"root"}`.
    std::fs::write(cluster.token(), "e30.eyJleHAiOjQxMDI0NDQ4MDAsInN1biI6InJvb3QifQ.e30").unwrap();
    let told = format!("is of user root now, and the jobs of this gateway are of user {USER}: go back");
    says(&provider, &told).await;
    let ended = provider.stop(id).await.unwrap_err().to_string();
    let started = provider.start(provider.next_id(), offer(&provider)).await.unwrap_err().to_string();
    assert!(ended.contains(&told) && started.contains(&told), "{ended}; {started}");
    std::fs::write(cluster.token(), ours).unwrap();
    self::told(&provider, |list| list.as_ref() == Ok(&before)).await;
    assert_eq!(cluster.jobs(), ["tidegate:chat-1 RUNNING"]);
    provider.stop(id).await.unwrap();
    assert_eq!(cluster.jobs(), Vec::<String>::new());
}

/// Answers as slurmrestd does where there are no jobs, whatever it is asked.
async fn serve_none(listener: UnixListener) {
    let told = r#"{"paths": {"/slurm/v0.0.40/job/submit": {}}, "pings": [{"pinged": "UP"}]}"#;
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{told}", told.len());
    loop {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(client.read_u8().await.unwrap());
        }
        client.write_all(answer.as_bytes()).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn c2_a_cluster_that_is_back_is_noticed_at_once_and_when_it_was_said_to_be_asked() {
    let dir = tempfile::tempdir().unwrap();
    let provider = open(dir.path(), spec_in(dir.path(), None));
    says(&provider, "No such file or directory").await;
    // So long that pauses are as long as they get.
    let hour = tokio::time::timeout(Duration::from_secs(3600), provider.changed()).await;
    assert!(hour.is_err(), "that it goes on is no news");
    tokio::spawn(serve_none(UnixListener::bind(dir.path().join("socket")).unwrap()));
    let (since, next) = (Instant::now(), provider.looks_in().unwrap());
    assert!(next <= Duration::from_secs(2), "{next:?}");
    provider.changed().await;
    assert_eq!(provider.list().await.unwrap(), []);
    assert!(since.elapsed().abs_diff(next) <= Duration::from_millis(2), "{:?}, {next:?}", since.elapsed());
}

/// What happens to a submission on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It arrives, and so does the answer.
    Open,
    /// It arrives; the answer does not.
    AnswerLost,
    /// It does not arrive.
    Lost,
}

/// Stands between a provider and slurmrestd.
struct Relay {
    path: PathBuf,
    way: Arc<Mutex<Way>>,
}

impl Relay {
    fn new(cluster: &Cluster) -> Self {
        let path = cluster.dir().join("relay");
        let listener = UnixListener::bind(&path).unwrap();
        let way = Arc::new(Mutex::new(Way::Open));
        let (shared, target) = (Arc::clone(&way), cluster.socket());
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let way = *shared.lock().unwrap();
                tokio::spawn(relay(client, target.clone(), way));
            }
        });
        Self { path, way }
    }

    fn set(&self, way: Way) {
        *self.way.lock().unwrap() = way;
    }
}

async fn relay(mut client: UnixStream, target: PathBuf, way: Way) {
    let mut begin = [0; 4];
    client.read_exact(&mut begin).await.unwrap();
    let way = if &begin == b"POST" { way } else { Way::Open };
    if way == Way::Lost {
        return;
    }
    let mut server = UnixStream::connect(target).await.unwrap();
    server.write_all(&begin).await.unwrap();
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let answer = async {
        let mut answer = Vec::new();
        from_server.read_to_end(&mut answer).await.unwrap();
        answer
    };
    tokio::select! {
        answer = answer => if way == Way::Open { to_client.write_all(&answer).await.unwrap() },
        _ = async { tokio::io::copy(&mut from_client, &mut to_server).await.unwrap(); std::future::pending::<()>().await } => {}
    }
}

#[tokio::test]
async fn c005_a_job_whose_submission_was_not_answered_is_found_and_is_the_only_one() {
    let Some(cluster) = Cluster::start() else { return };
    let state = tempfile::tempdir().unwrap();
    let relay = Relay::new(&cluster);
    let access = SlurmAccess { site: Site::Unix(relay.path.clone()), ..by_socket(&cluster) };
    let access = SlurmAccess { user: Some("nobody".to_owned()), ..access };
    let provider = open(state.path(), spec(&cluster, access, "chat", serving()));
    assert_eq!(provider.list().await.unwrap(), []);
    relay.set(Way::AnswerLost);
    let first = start(&provider).await;
    relay.set(Way::Open);
    let list = until(&provider, |list| up(list, 1)).await;
    assert_eq!(list[0].id, first);
    assert_eq!(cluster.jobs(), ["tidegate:chat-1 RUNNING"]);

    relay.set(Way::Lost);
    let second = start(&provider).await;
    relay.set(Way::Open);
    let list = provider.list().await.unwrap();
    assert!(
        matches!(&list[1].state, InstanceState::Pending { why } if why.contains("not known yet")),
        "{list:?}"
    );
    let error = provider.stop(second).await.unwrap_err();
    assert!(error.to_string().ends_with("whether Slurm has taken its job is not known yet"), "{error}");
    assert_eq!(cluster.jobs(), ["tidegate:chat-1 RUNNING"], "and none is submitted twice");
}

/// A book without a Slurm behind it.
fn book(dir: &Path) -> (Core, Whose) {
    book_of(dir, None)
}

/// The same, of jobs of that user.
fn book_of(dir: &Path, user: Option<&str>) -> (Core, Whose) {
    let spec = spec_in(dir, user);
    let state = StateDir::open(dir).unwrap();
    let (_claim, folder) = state.claim(&spec.deployment).unwrap();
    (Core::new(spec, "owner", folder, ReplicaId(1)), Whose::Id(7))
}

/// A deployment on a cluster that would be at a socket in `dir`.
fn spec_in(dir: &Path, user: Option<&str>) -> SlurmSpec {
    let site = Site::Unix(dir.join("socket"));
    let offer = SlurmOffer {
        name: "main".to_owned(),
        partition: None,
        gres: None,
        capacity: Capacity::ONE,
        price: Price::FREE,
        memory: None,
        cached: false,
    };
    SlurmSpec {
        deployment: DeploymentName::new("chat"),
        command: serving(),
        env: BTreeMap::new(),
        dir: dir.to_owned(),
        logs: dir.to_owned(),
        ports: 1..=2,
        account: None,
        qos: None,
        time_limit: None,
        options: BTreeMap::new(),
        offers: vec![offer],
        access: SlurmAccess { site, token: None, user: user.map(str::to_owned), api: None },
        start_limit: crate::control::START_LIMIT,
    }
}

/// The job of replica `id` as a listing has it.
fn job(core: &Core, id: u32, number: u64) -> Job {
    Job {
        job_id: Some(number),
        job_state: vec!["PENDING".to_owned()],
        comment: core.mark(ReplicaId(id), &core.spec.offers[0]).to_string(),
        user_id: Some(7),
        ..Job::default()
    }
}

#[tokio::test(start_paused = true)]
async fn c005_a_job_that_comes_after_it_was_given_up_is_a_stray() {
    let dir = tempfile::tempdir().unwrap();
    let (core, whose) = book(dir.path());
    core.set_trouble(None, Duration::ZERO);
    core.order(ReplicaId(1), &core.spec.offers[0]);
    core.unanswered(ReplicaId(1), "cut off");
    core.give_up_lost(Instant::now());
    assert!(core.has_lost(), "too early to say");
    tokio::time::advance(LOST_LIMIT).await;
    core.give_up_lost(Instant::now());
    let list = core.list().await.unwrap();
    assert!(
        matches!(&list[0].state, InstanceState::Exited { how, .. } if how.contains("not answered")),
        "{list:?}"
    );
    assert!(!core.has_lost() && core.misses_jobs());
    core.remove(ReplicaId(1));
    let strays = core.take_in(&[job(&core, 1, 11)], &whose, &[], false);
    assert_eq!(
        strays,
        [Stray { job: 11, deployment: core.spec.deployment.clone(), why: "its replica was given up" }]
    );
    tokio::time::advance(LATE_LIMIT).await;
    assert!(!core.misses_jobs(), "enough");
}

#[tokio::test]
async fn c005_a_job_of_a_deployment_that_is_gone_is_told_under_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let (core, whose) = book(dir.path());
    let gone = DeploymentName::new("gone");
    let mark = Mark { deployment: gone.clone(), ..core.mark(ReplicaId(1), &core.spec.offers[0]) };
    let listing = [Job { comment: mark.to_string(), ..job(&core, 1, 17) }];
    let strays = core.take_in(&listing, &whose, &["chat".to_owned()], true);
    let why = "its deployment is gone from the configuration";
    assert_eq!(strays, [Stray { job: 17, deployment: gone, why }]);
    assert_eq!(core.take_in(&listing, &whose, &["chat".to_owned(), "gone".to_owned()], true), []);
}

#[tokio::test]
async fn c005_a_replica_has_one_job() {
    let dir = tempfile::tempdir().unwrap();
    let (core, whose) = book(dir.path());
    let listing = [job(&core, 4, 21), job(&core, 4, 22), Job { user_id: Some(8), ..job(&core, 5, 23) }];
    let strays = core.take_in(&listing, &whose, &[], true);
    assert_eq!(
        strays,
        [Stray { job: 22, deployment: core.spec.deployment.clone(), why: "its replica has another job" }]
    );
    assert_eq!(core.jobs(), [(ReplicaId(4), 21)]);
    assert_eq!(core.ids.next(), ReplicaId(5), "an id that a job has is not used again");
    let again = Job { name: "other".to_owned(), comment: String::new(), ..job(&core, 4, 21) };
    assert!(core.is_of(ReplicaId(4), &job(&core, 4, 21), &whose));
    assert!(!core.is_of(ReplicaId(4), &again, &whose), "Slurm has given the number again");
}

#[test]
fn m2_c005_what_is_on_record_of_another_users_jobs_stays_where_those_of_ours_are_ended() {
    let dir = tempfile::tempdir().unwrap();
    let (core, _) = book_of(dir.path(), Some("u2"));
    let state = StateDir::open(dir.path()).unwrap();
    let gone = state.path().join("gone");
    std::fs::create_dir(&gone).unwrap();
    for user in ["u1", "u2"] {
        let cluster = left::cluster(&core.spec.access);
        let record = format!(
            r#"{{"cluster": "{cluster}", "whose": {{"name": "{user}"}}, "owner": "owner", "replicas": [1]}}"#
        );
        std::fs::write(gone.join(format!("jobs-{user}")), record).unwrap();
    }
    core.settle_earlier(&state, &["chat".to_owned()]);
    assert_eq!(["jobs-u1", "jobs-u2"].map(|file| gone.join(file).exists()), [true, false]);
}

#[tokio::test(start_paused = true)]
async fn c2_a_job_that_never_had_a_node_has_no_output_and_one_that_had_says_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (core, _) = book(dir.path());
    let id = ReplicaId(1);
    core.order(id, &core.spec.offers[0]);
    core.submitted(id, 5, None);
    let pending = |why: &str| InstanceState::Pending { why: why.to_owned() };
    core.set_state(id, pending("Slurm has not looked at its job yet"));
    assert_eq!(core.output(id), [""; 0], "cancelled in its first seconds");
    core.set_ran(id);
    core.set_state(id, pending("Slurm puts it back"));
    let [told] = core.output(id).try_into().unwrap();
    assert!(told.contains("tidegate-chat-1.5.log on its node"), "{told}");
}
