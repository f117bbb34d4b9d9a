//! What happens to jobs that people scale, suspend, change, break and delete.

use std::time::Duration;

use kube::ResourceExt;
use trainyard_api::{Cause, State, TrainingJobStatus};
use trainyard_testcluster::{Script, enabled};

use super::support::{Yard, job};

#[tokio::test]
async fn scaling_two_four_one() {
    if !enabled() {
        return;
    }
    let yard = Yard::new("scaling").await;
    yard.apply(&job("bert", 2)).await.expect("apply");
    yard.until_state("bert", State::Running).await;
    for (workers, attempt) in [(4, 2), (1, 3)] {
        yard.kubectl(&["scale", "tj/bert", &format!("--replicas={workers}")]).await;
        let status = yard
            .until("bert", "the new size", |status| {
                status.state == Some(State::Running)
                    && status.attempts.last().is_some_and(|last| last.number == attempt)
                    && status.workers.is_some_and(|counts| counts.active == workers)
            })
            .await;
        assert_eq!(status.replicas, Some(workers));
        let wanted: Vec<String> = (0..workers).map(|index| format!("bert-workers-{index}")).collect();
        assert_eq!(yard.pod_names("bert").await, wanted);
    }
    let status = yard.status("bert").await;
    let restarts = status.restarts.unwrap();
    assert_eq!((restarts.rescale, restarts.total()), (2, 2), "nothing else was counted");
    let scale = yard
        .kubectl(&[
            "get",
            "tj",
            "bert",
            "--subresource=scale",
            "-o",
            "jsonpath={.spec.replicas} {.status.replicas} {.status.selector}",
        ])
        .await;
    assert!(scale.starts_with("1 1 app=trainingjob,trainingjob=bert"), "{scale}");

    // A job that was written with the other name says how to scale it.
    let lab = job("lab", 1).replace("numWorkers", "workers");
    yard.apply(&lab).await.expect("apply");
    let refused = yard.kubectl_in(&["scale", "tj/lab", "--replicas=2"]).await;
    assert!(
        !refused.success
            && refused.stderr.contains("kubectl scale trainingjobs.v1alpha1.ml.example.com/NAME"),
        "{refused}"
    );
    yard.kubectl(&["scale", "trainingjobs.v1alpha1.ml.example.com/lab", "--replicas=2"]).await;
    yard.until("lab", "two workers", |status| status.workers.is_some_and(|counts| counts.active == 2)).await;
}

#[tokio::test]
async fn failures_are_counted_once_and_end_at_the_limit() {
    if !enabled() {
        return;
    }
    let yard = Yard::new("failures").await;
    // Worker 1 of "doomed" always fails; that of "shaky" fails in its first attempt.
    yard.script(|pod| {
        let name = pod.name_any();
        let first =
            pod.labels().get("trainingjob.ml.example.com/attempt").is_some_and(|attempt| attempt == "1");
        let fails = name == "doomed-workers-1" || (name == "shaky-workers-1" && first);
        if fails {
            Script::exit(Duration::from_millis(150), 3)
        } else {
            Script::exit(Duration::from_millis(600), 0)
        }
    });
    yard.apply(&format!("{}  backoffLimit: 2\n", job("doomed", 2))).await.expect("apply");
    yard.apply(&job("shaky", 2)).await.expect("apply");

    let status = yard.until_state("shaky", State::Completed).await;
    assert_eq!(status.restarts.unwrap().application, 1);
    let attempts: Vec<(i32, Option<Cause>, Option<i32>)> =
        status.attempts.iter().map(|attempt| (attempt.number, attempt.cause, attempt.exit_code)).collect();
    assert_eq!(attempts, [(1, Some(Cause::Application), Some(3)), (2, Some(Cause::Succeeded), None)]);

    let status = yard.until_state("doomed", State::Failed).await;
    assert_eq!(status.restarts.unwrap().application, 2, "backoffLimit 2: two restarts");
    assert_eq!(status.attempts.len(), 3, "the third failure is final");
    let failed = status.condition("Failed").unwrap();
    assert_eq!(failed.reason, "BackoffLimitExceeded");
    assert!(
        failed.message.contains("Worker 1 failed") && failed.message.contains("exit code 3"),
        "{}",
        failed.message
    );
    yard.wait_for("clean-up of what still ran", async || {
        yard.pods("doomed").await.iter().all(|pod| {
            matches!(
                pod.status.as_ref().and_then(|status| status.phase.as_deref()),
                Some("Succeeded" | "Failed")
            )
        })
    })
    .await;
}

#[tokio::test]
async fn suspend_resume_change_and_delete() {
    if !enabled() {
        return;
    }
    let yard = Yard::new("changes").await;
    yard.apply(&job("bert", 2)).await.expect("apply");
    yard.until_state("bert", State::Running).await;

    yard.kubectl(&["patch", "tj", "bert", "--type=merge", "-p", r#"{"spec":{"suspend":true}}"#]).await;
    yard.until_state("bert", State::Suspended).await;
    yard.wait_for("no pods", async || yard.pods("bert").await.is_empty()).await;
    yard.kubectl(&["patch", "tj", "bert", "--type=merge", "-p", r#"{"spec":{"suspend":false}}"#]).await;
    let status = yard.until_state("bert", State::Running).await;
    assert_eq!(status.restarts.unwrap_or_default().total(), 0, "a suspension is no restart");

    // Another image: new pods, not counted.
    yard.kubectl(&["patch", "tj", "bert", "--type=merge", "-p", r#"{"spec":{"image":"train:2"}}"#]).await;
    yard.until("bert", "the update", |status| {
        status.restarts.unwrap_or_default().update == 1 && status.state == Some(State::Running)
    })
    .await;
    for pod in yard.pods("bert").await {
        assert_eq!(pod.spec.unwrap().containers[0].image.as_deref(), Some("train:2"));
    }
    // A policy takes effect without a restart.
    let uid = yard.pods("bert").await[0].uid();
    yard.kubectl(&["patch", "tj", "bert", "--type=merge", "-p", r#"{"spec":{"backoffLimit":9}}"#]).await;
    yard.until("bert", "the policy", |status| {
        status.effective.as_ref().is_some_and(|it| it.backoff_limit == 9)
    })
    .await;
    assert_eq!(yard.pods("bert").await[0].uid(), uid);

    // Somebody deletes a pod, the service and the config map, and edits them.
    yard.kubectl(&["delete", "pod", "bert-workers-1", "--wait=false"]).await;
    yard.until("bert", "the replacement", |status| {
        status.restarts.unwrap_or_default().disruption == 1 && status.state == Some(State::Running)
    })
    .await;
    yard.kubectl(&["delete", "service/bert-workers", "configmap/bert-config"]).await;
    yard.wait_for("both again", async || {
        yard.kubectl_in(&["get", "service/bert-workers", "configmap/bert-config"]).await.success
    })
    .await;
    yard.kubectl(&[
        "patch",
        "configmap",
        "bert-config",
        "--type=merge",
        "-p",
        r#"{"data":{"backend":"pigeon"}}"#,
    ])
    .await;
    yard.wait_for("put back", async || {
        yard.kubectl(&["get", "configmap", "bert-config", "-o", "jsonpath={.data.backend}"]).await == "gloo"
    })
    .await;
    assert_eq!(yard.status("bert").await.restarts.unwrap().total(), 2);

    yard.kubectl(&["delete", "tj", "bert"]).await;
    yard.wait_for("nothing is left", async || {
        yard.kubectl(&["get", "pods,svc,cm,pvc", "-l", "trainingjob=bert", "-o", "name"]).await.is_empty()
    })
    .await;
}

#[tokio::test]
async fn names_that_are_taken_and_quotas() {
    if !enabled() {
        return;
    }
    let yard = Yard::new("taken").await;
    let service =
        "apiVersion: v1\nkind: Service\nmetadata: {name: bert-workers}\nspec: {ports: [{port: 80}]}\n";
    yard.apply(service).await.expect("a service of somebody else");
    yard.apply(&job("bert", 2)).await.expect("apply");
    let status = yard
        .until("bert", "the conflict", |status| {
            status.condition("ResourcesCreated").is_some_and(|condition| condition.reason == "NameConflict")
        })
        .await;
    assert_eq!(status.state, Some(State::Pending));
    let message = status.message.unwrap_or_default();
    assert!(
        message.starts_with("service bert-workers exists already: it was not made by Trainyard"),
        "{message}"
    );
    assert!(yard.pods("bert").await.is_empty(), "nothing is half started");
    yard.kubectl(&["delete", "service", "bert-workers"]).await;
    yard.until_state("bert", State::Running).await;
    yard.kubectl(&["delete", "tj", "bert"]).await;

    // Room for two pods of three: none stays.
    yard.kubectl(&["create", "quota", "small", "--hard=pods=2"]).await;
    yard.wait_for("the quota", async || {
        yard.kubectl(&["get", "quota", "small", "-o", "jsonpath={.status.hard.pods}"]).await == "2"
    })
    .await;
    yard.apply(&job("big", 3)).await.expect("apply");
    let status = yard
        .until("big", "the quota", |status| {
            status.condition("ResourcesCreated").is_some_and(|condition| condition.reason == "QuotaExceeded")
        })
        .await;
    assert!(
        status.message.as_deref().unwrap_or_default().contains("exceeded quota: small"),
        "{status:#?}\n{}",
        yard.log()
    );
    yard.wait_for("never half a gang", async || yard.pods("big").await.is_empty()).await;
    yard.kubectl(&["patch", "quota", "small", "--type=merge", "-p", r#"{"spec":{"hard":{"pods":"5"}}}"#])
        .await;
    let status = yard.until_state("big", State::Running).await;
    assert_eq!(status.restarts.unwrap_or_default().application, 0);

    // Room that another job of ours makes is noticed at once.
    yard.apply(&job("next", 3)).await.expect("apply");
    yard.until("next", "the quota", |status| {
        status.condition("ResourcesCreated").is_some_and(|condition| condition.reason == "QuotaExceeded")
    })
    .await;
    yard.end_all("big", 0).await;
    yard.until_state("next", State::Running).await;
}

#[tokio::test]
async fn a_pod_that_lost_its_label_is_not_lost() {
    if !enabled() {
        return;
    }
    let yard = Yard::new("labels").await;
    yard.apply(&job("bert", 2)).await.expect("apply");
    yard.until_state("bert", State::Running).await;
    let label = "app.kubernetes.io/managed-by";
    yard.kubectl(&["label", "pod", "bert-workers-1", &format!("{label}-")]).await;
    yard.wait_for("the label is back", async || {
        yard.pods("bert").await.iter().all(|pod| pod.labels().get(label).is_some_and(|it| it == "trainyard"))
    })
    .await;
    // What is really deleted is replaced, with all others, and counted as no failure.
    yard.kubectl(&["delete", "pod", "bert-workers-0", "--force"]).await;
    let status = yard
        .until("bert", "the second attempt", |status| {
            status.state == Some(State::Running)
                && status.attempts.last().is_some_and(|attempt| attempt.number == 2)
        })
        .await;
    assert_eq!(status.restarts.unwrap_or_default().application, 0);
    assert_eq!(status.attempts.len(), 2, "the label made no attempt of its own");
}

#[tokio::test]
async fn what_a_pod_needs_and_is_not_there_is_told_at_once() {
    if !enabled() {
        return;
    }
    let yard = Yard::new("missing").await;
    let template = "  template: {spec: {serviceAccountName: nobody}}\n";
    yard.apply(&(job("bert", 1) + template)).await.expect("apply");
    let status = yard.until_state("bert", State::Pending).await;
    let message = status.message.unwrap_or_default();
    assert!(message.contains("serviceaccount \"nobody\" not found"), "{message}");
    yard.kubectl(&["create", "serviceaccount", "nobody"]).await;
    yard.until_state("bert", State::Running).await;
}

#[tokio::test]
async fn times_are_kept() {
    if !enabled() {
        return;
    }
    let yard = Yard::new("times").await;
    yard.script(|pod| {
        if pod.name_any().starts_with("quick") {
            Script::exit(Duration::from_millis(100), 0)
        } else {
            Script::run_forever()
        }
    });
    yard.apply(&format!("{}  ttlSecondsAfterFinished: 1\n", job("quick", 1))).await.expect("apply");
    yard.apply(&format!("{}  activeDeadlineSeconds: 2\n", job("slow", 1))).await.expect("apply");
    let stuck = job("stuck", 1) + "  startupTimeoutSeconds: 2\n  resources: {requests: {cpu: 9999}}\n";
    yard.apply(&stuck).await.expect("apply");
    yard.wait_for("the job is gone after its time", async || {
        yard.jobs().get_opt("quick").await.unwrap().is_none()
    })
    .await;
    let slow = yard.until_state("slow", State::Failed).await;
    assert_eq!(slow.condition("Failed").unwrap().reason, "DeadlineExceeded");
    let stuck = yard.until_state("stuck", State::Failed).await;
    let failed = stuck.condition("Failed").unwrap();
    assert_eq!(failed.reason, "StartupTimeout");
    assert!(failed.message.contains("Insufficient cpu"), "{}", failed.message);
    yard.wait_for("their pods are gone", async || {
        yard.pods("slow").await.is_empty() && yard.pods("stuck").await.is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_claim_that_is_never_bound_is_told_in_the_schedulers_words() {
    if !enabled() {
        return;
    }
    let yard = Yard::new("unbound").await;
    // Nobody here provisions for it.
    let class = "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: never}\nprovisioner: example.com/nobody\n";
    yard.apply(class).await.expect("a class");
    let storage = "  checkpoint: {storage: {storageClass: never, size: 1Gi}}\n";
    yard.apply(&(job("bert", 2) + storage)).await.expect("apply");
    let words = "pod has unbound immediate PersistentVolumeClaims";
    let told = |status: &TrainingJobStatus| {
        status.message.as_deref().is_some_and(|message| message.contains(words))
            && status
                .worker_statuses
                .iter()
                .all(|worker| worker.message.as_deref().is_some_and(|message| message.contains(words)))
    };
    let status = yard.until("bert", "the scheduler's words", told).await;
    assert_eq!(status.restarts.unwrap_or_default().total(), 0, "waiting is no failure");
    let claim = ["get", "pvc", "bert-checkpoints", "-o", "jsonpath={.status.phase}"];
    assert_eq!(yard.kubectl(&claim).await, "Pending");

    // Whoever makes a volume by hand after all needs to do nothing else.
    yard.apply(
        "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: by-hand}\nspec:\n  capacity: {storage: 1Gi}\n  \
         accessModes: [ReadWriteMany, ReadWriteOnce]\n  storageClassName: never\n  hostPath: {path: /tmp/by-hand}\n",
    )
    .await
    .expect("a volume");
    yard.until_state("bert", State::Running).await;
}
