//! The ways in which a pod gets credentials for Google's storage. What is the same for every vendor is in `vendors.rs`.

#![expect(clippy::unwrap_used, reason = "in tests a panic is the message")]

mod support {
    pub(crate) mod files;
    pub(crate) mod world;
}

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use support::files::{self, file};
use support::world::{World, at, options, variables_of_this_process};
use trainyard_agent::store::Directory;
use trainyard_agent::{Agent, Start};
use trainyard_api::checkpoint::AgentReport;
use trainyard_testbucket::{Vendor, google};

fn world() -> World {
    World::of(Vendor::Google)
}

/// The file that Google gives for a key of a service account; nothing, and said so, where no key can be made.
fn key_file(directory: &Path, account: &str) -> Option<String> {
    let made = Command::new("openssl")
        .args(["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"])
        .output();
    let Some(made) = made.ok().filter(|output| output.status.success()) else {
        println!("skipped: there is no openssl to make a key with");
        return None;
    };
    let key = serde_json::json!({
        "type": "service_account",
        "project_id": "project",
        "private_key_id": "1",
        "private_key": String::from_utf8(made.stdout).unwrap(),
        "client_email": account,
        "token_uri": "https://oauth2.googleapis.com/token",
    });
    let path = directory.join("key.json");
    std::fs::write(&path, key.to_string()).unwrap();
    Some(path.to_str().unwrap().to_owned())
}

/// An agent whose credentials are in this file.
fn with_file(world: &World, pod: &str, path: &str) -> Agent {
    let variables = [("GOOGLE_APPLICATION_CREDENTIALS", path), ("GOOGLE_BASE_URL", &world.server.endpoint)];
    let variables = variables.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
    let store = Box::new(Directory::new(world.pod(pod).to_str().unwrap()));
    Agent::new(store, options()).with_copy_in(&world.place, variables, true)
}

#[test]
fn a_key_of_a_service_account_lets_it_in() {
    let world = world();
    let Some(path) = key_file(world.disk.path(), google::ACCOUNT) else { return };
    let mut agent = with_file(&world, "pod", &path);
    assert_eq!((agent.begin(at(0)).problem, agent.start()), (None, Start::Ready));
    world.save("pod", &vec![file("step-1.pt", files::torch(&[]))]);
    let report = agent.finish(at(10));
    assert_eq!(report.checkpoint.unwrap().path, "gs://bucket/ml/bert/step-1.pt", "{:?}", report.problem);
    assert_eq!(world.kept(), ["step-1.pt"]);
}

#[test]
fn a_key_of_another_account_does_not() {
    let world = world();
    let Some(path) = key_file(world.disk.path(), "somebody@else.iam.gserviceaccount.com") else { return };
    let mut agent = with_file(&world, "pod", &path);
    let problem = agent.begin(at(0)).problem.unwrap();
    assert_eq!(agent.start(), Start::Held);
    assert!(problem.contains("the credentials for gs://bucket/ml/bert were refused"), "{problem}");
}

#[test]
fn a_key_that_is_corrected_lets_it_in() {
    let world = world();
    let wrong = "somebody@else.iam.gserviceaccount.com";
    let Some(path) = key_file(world.disk.path(), wrong) else { return };
    let mut agent = with_file(&world, "pod", &path);
    agent.begin(at(0));
    assert_eq!(agent.start(), Start::Held);
    key_file(world.disk.path(), google::ACCOUNT);
    assert_eq!((agent.look(at(10)).problem, agent.start()), (None, Start::Ready));
    // The same while the program runs.
    key_file(world.disk.path(), wrong);
    let mut agent = with_file(&world, "pod", &path);
    world.save("pod", &vec![file("step-1.pt", files::torch(&[]))]);
    assert!(agent.finish(at(10)).problem.is_some());
    key_file(world.disk.path(), google::ACCOUNT);
    assert_eq!(agent.finish(at(40)).problem, None);
    assert_eq!(world.kept(), ["step-1.pt"]);
}

#[test]
fn a_file_of_credentials_that_cannot_be_used_is_told() {
    let world = world();
    let path = world.disk.path().join("key.json");
    let no_key =
        r#"{"type": "service_account", "private_key": "x", "private_key_id": "1", "client_email": "a"}"#;
    for (content, reason) in [
        (None, "(Unable to open service account file from"),
        (Some("{"), "(Unable to decode service account file: "),
        (Some(r#"{"type": "external_account"}"#), "unknown variant `external_account`"),
        (Some(no_key), "(Error reading pem file: no items found)"),
    ] {
        if let Some(content) = content {
            std::fs::write(&path, content).unwrap();
        }
        let mut agent = with_file(&world, "pod", path.to_str().unwrap());
        let problem = agent.begin(at(0)).problem.unwrap();
        assert_eq!(agent.start(), Start::Held);
        let words =
            "the credentials for gs://bucket/ml/bert cannot be used: check GOOGLE_APPLICATION_CREDENTIALS";
        assert!(problem.contains(words) && problem.contains(reason), "{problem}");
        assert!(!problem.contains("Generic"), "{problem}");
    }
    // It may come later.
    let Some(path) = key_file(world.disk.path(), google::ACCOUNT) else { return };
    std::fs::remove_file(&path).unwrap();
    let mut agent = with_file(&world, "pod", &path);
    agent.begin(at(0));
    key_file(world.disk.path(), google::ACCOUNT);
    assert_eq!((agent.look(at(10)).problem, agent.start()), (None, Start::Ready));
}

/// Not a test but the process of the others: it runs only when it is told where.
#[test]
fn agent_process() {
    let Ok(directory) = std::env::var("AGENT_PROCESS_DIRECTORY") else { return };
    let agent = Agent::new(Box::new(Directory::new(&directory)), options());
    let agent =
        agent.with_copy_in(&std::env::var("AGENT_PROCESS_PLACE").unwrap(), variables_of_this_process(), true);
    trainyard_agent::run::run(agent, Duration::from_millis(50), &mut std::io::stdout()).unwrap();
}

/// The first report of an agent that has nothing but the service account of its pod.
fn in_a_pod(world: &World, metadata: &str) -> AgentReport {
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "agent_process", "--nocapture"])
        .env("AGENT_PROCESS_DIRECTORY", world.pod("pod"))
        .env("AGENT_PROCESS_PLACE", &world.place)
        .env("GOOGLE_BASE_URL", &world.server.endpoint)
        .env("GCE_METADATA_HOST", metadata)
        .env("GCE_METADATA_IP", metadata)
        .env_remove("GOOGLE_APPLICATION_CREDENTIALS")
        // The file of a person who works here is not the pod's.
        .env("HOME", world.disk.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let report = lines.find_map(|line| {
        let line = line.unwrap();
        line.find('{').and_then(|at| AgentReport::of_line(&line[at..]))
    });
    process.kill().unwrap();
    process.wait().unwrap();
    report.unwrap()
}

#[test]
fn the_service_account_of_the_pod_lets_it_in() {
    let world = world().with_saved(&["step-5.pt"]);
    let address = world.server.endpoint.strip_prefix("http://").unwrap();
    let report = in_a_pod(&world, address);
    assert_eq!(report.problem, None);
    assert_eq!(report.checkpoint.unwrap().path, "gs://bucket/ml/bert/step-5.pt");
    assert!(world.has("pod", "step-5.pt"));
}

#[test]
fn a_pod_without_credentials_is_told() {
    let world = world();
    let problem = in_a_pod(&world, "127.0.0.1:1").problem.unwrap();
    assert!(problem.contains("there are no credentials for gs://bucket/ml/bert"), "{problem}");
}
