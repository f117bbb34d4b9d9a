//! What a cluster with real nodes has beside its control plane: the nodes, and the name server.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject};
use kube::api::{Api, ObjectMeta, PostParams};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{NAME_SERVER, TestCluster};
use crate::image::Archive;
use crate::nodes::NAME_SERVER_READY;
use crate::{Error, Node, RootFs};

impl TestCluster {
    /// The real nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes.0
    }

    /// The real node `node-N`. Panics when the cluster has no such node.
    pub fn node(&self, number: usize) -> &Node {
        &self.nodes.0[number]
    }

    /// Gives every real node that is on an image, which pods can then use by that name. Making it
    /// takes time when its packages are not in the cache yet (progress goes to standard error).
    pub async fn image(&self, name: &str, root: &RootFs) -> Result<(), Error> {
        let (name, root) = (name.to_owned(), root.clone());
        let make = move || Archive::make(&name, &root, &mut |line| eprintln!("{line}"));
        let archive = tokio::task::spawn_blocking(make)
            .await
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        let archive = Arc::new(archive);
        let on = self.nodes().iter().filter(|node| node.pid().is_some());
        futures::future::try_join_all(on.map(|node| node.load(Arc::clone(&archive)))).await?;
        Ok(())
    }

    /// `kill -9` to the first process of a running container on a real node.
    pub async fn kill_container(&self, namespace: &str, pod: &str, container: &str) -> Result<(), Error> {
        let (node, id) = self.running_container(namespace, pod, container).await?;
        self.node(node).kill_container(&id).await
    }

    /// The number of the real node on which a container runs, and its id there: what it takes to kill it while the API server is away.
    pub async fn running_container(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
    ) -> Result<(usize, String), Error> {
        let absent = || Error::NoSuchContainer {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            container: container.to_owned(),
        };
        let pods: Api<Pod> = Api::namespaced(self.client().await?, namespace);
        let found = pods.get(pod).await?;
        let node = found.spec.and_then(|spec| spec.node_name).unwrap_or_default();
        let node = self.nodes().iter().position(|candidate| candidate.name() == node).ok_or_else(absent)?;
        let status = found.status.unwrap_or_default();
        let id = [status.init_container_statuses, status.container_statuses]
            .into_iter()
            .flatten()
            .flatten()
            .find(|status| {
                status.name == container && status.state.as_ref().is_some_and(|state| state.running.is_some())
            })
            .and_then(|status| status.container_id)
            .ok_or_else(absent)?;
        Ok((node, id.trim_start_matches("containerd://").to_owned()))
    }

    pub(super) async fn start_nodes(&mut self) -> Result<(), Error> {
        self.allow_name_server().await?;
        self.name_server = Some(self.run(NAME_SERVER, self.name_server_flags())?);
        let now = jiff::Timestamp::now();
        let start = async |node: &Node| {
            node.boot().await?;
            node.until_ready(now).await
        };
        futures::future::try_join_all(self.nodes().iter().map(start)).await?;
        let address = self.address();
        self.wait(NAME_SERVER, "readiness", || async move {
            // It answers with its status and closes; nothing else is of interest.
            let answer = ask(address, NAME_SERVER_READY).await.unwrap_or_default();
            Ok(answer.starts_with("HTTP/1.0 200") || answer.starts_with("HTTP/1.1 200"))
        })
        .await
    }

    /// What the name server reads.
    async fn allow_name_server(&self) -> Result<(), Error> {
        let client = self.client().await?;
        let metadata = ObjectMeta { name: Some(NAME_SERVER.into()), ..ObjectMeta::default() };
        let may_watch = |group: &str, resources: &[&str]| PolicyRule {
            api_groups: Some(vec![group.into()]),
            resources: Some(resources.iter().map(|name| (*name).to_owned()).collect()),
            verbs: vec!["list".into(), "watch".into()],
            ..PolicyRule::default()
        };
        let all_of_it = ClusterRole {
            metadata: metadata.clone(),
            rules: Some(vec![
                may_watch("", &["services", "pods", "namespaces"]),
                may_watch("discovery.k8s.io", &["endpointslices"]),
            ]),
            ..ClusterRole::default()
        };
        let group = "rbac.authorization.k8s.io".to_owned();
        let user = Subject {
            api_group: Some(group.clone()),
            kind: "User".into(),
            name: NAME_SERVER.into(),
            namespace: None,
        };
        let binding = ClusterRoleBinding {
            metadata,
            role_ref: RoleRef {
                api_group: Some(group),
                kind: "ClusterRole".into(),
                name: NAME_SERVER.into(),
            },
            subjects: Some(vec![user]),
        };
        Api::all(client.clone()).create(&PostParams::default(), &all_of_it).await?;
        Api::all(client).create(&PostParams::default(), &binding).await?;
        Ok(())
    }

    pub(super) fn name_server_config(&self) -> PathBuf {
        self.dir().join("name-server.conf")
    }
}

/// What a server says to a plain HTTP request.
async fn ask(address: Ipv4Addr, port: u16) -> std::io::Result<String> {
    let mut stream = tokio::net::TcpStream::connect((address, port)).await?;
    stream.write_all(b"GET /ready HTTP/1.0\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
