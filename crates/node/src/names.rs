//! How pods find each other by name: PURE. Every pod has a loopback address of its own, and a hosts file says whose it is.
//!
//! The names are those of cluster DNS. One file serves all pods of a namespace, because the short forms depend on it.

use std::collections::BTreeMap;
use std::fmt::Write;

use k8s_openapi::api::core::v1::{Pod, Service};

/// A pod that has an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Host {
    pub(crate) namespace: String,
    pub(crate) hostname: String,
    pub(crate) subdomain: Option<String>,
    pub(crate) address: String,
    pub(crate) labels: BTreeMap<String, String>,
}

/// A service, as far as names need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selected {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) selector: BTreeMap<String, String>,
}

impl Host {
    pub(crate) fn of(pod: &Pod, address: &str) -> Self {
        let spec = pod.spec.as_ref();
        Self {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            hostname: hostname(pod),
            subdomain: spec.and_then(|spec| spec.subdomain.clone()).filter(|subdomain| !subdomain.is_empty()),
            address: address.to_owned(),
            labels: pod.metadata.labels.clone().unwrap_or_default(),
        }
    }

    /// The names of this pod as pods of `namespace` may write them, the longest first.
    pub(crate) fn names(&self, namespace: &str) -> Vec<String> {
        let mut names = Vec::new();
        if let Some(subdomain) = &self.subdomain {
            names = forms(&format!("{}.{subdomain}", self.hostname), &self.namespace, namespace);
        }
        if self.namespace == namespace {
            names.push(self.hostname.clone());
        }
        names
    }
}

impl Selected {
    /// None for a service that selects nothing.
    pub(crate) fn of(service: &Service) -> Option<Self> {
        let selector = service.spec.as_ref()?.selector.clone().filter(|selector| !selector.is_empty())?;
        Some(Self {
            namespace: service.metadata.namespace.clone()?,
            name: service.metadata.name.clone()?,
            selector,
        })
    }

    fn selects(&self, host: &Host) -> bool {
        self.namespace == host.namespace
            && self.selector.iter().all(|(key, value)| host.labels.get(key) == Some(value))
    }
}

/// What a pod calls itself.
pub(crate) fn hostname(pod: &Pod) -> String {
    let given = pod.spec.as_ref().and_then(|spec| spec.hostname.clone()).filter(|name| !name.is_empty());
    let mut name = given.or_else(|| pod.metadata.name.clone()).unwrap_or_default();
    // A host name has at most 63 characters.
    name.truncate(63);
    name
}

fn forms(name: &str, own: &str, from: &str) -> Vec<String> {
    let mut forms =
        vec![format!("{name}.{own}.svc.cluster.local"), format!("{name}.{own}.svc"), format!("{name}.{own}")];
    if own == from {
        forms.push(name.to_owned());
    }
    forms
}

/// The hosts file of the pods of a namespace: the machine's own, and a line for every name of ours.
pub(crate) fn hosts_file(machine: &str, namespace: &str, hosts: &[Host], services: &[Selected]) -> String {
    let mut text = machine.trim_end().to_owned();
    text.push_str("\n\n# Pods on this machine\n");
    let mut hosts: Vec<&Host> = hosts.iter().collect();
    hosts.sort();
    for host in &hosts {
        let names = host.names(namespace);
        if !names.is_empty() {
            let _ = writeln!(text, "{}\t{}", host.address, names.join(" "));
        }
    }
    for service in services {
        let names = forms(&service.name, &service.namespace, namespace).join(" ");
        for host in hosts.iter().filter(|host| service.selects(host)) {
            let _ = writeln!(text, "{}\t{names}", host.address);
        }
    }
    text
}

/// Where the machine does not look into the hosts file first, a container must: its own `nsswitch.conf`, if it needs one.
pub(crate) fn name_service_switch(machine: &str) -> Option<String> {
    let mut changed = false;
    let lines: Vec<String> = machine
        .lines()
        .map(|line| {
            let Some(sources) = line.trim_start().strip_prefix("hosts:") else { return line.to_owned() };
            if sources.split_whitespace().next() == Some("files") {
                return line.to_owned();
            }
            changed = true;
            let others: Vec<&str> = sources.split_whitespace().filter(|source| *source != "files").collect();
            format!("hosts: files {}", others.join(" "))
        })
        .collect();
    changed.then(|| lines.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(namespace: &str, name: &str, address: &str) -> Host {
        Host {
            namespace: namespace.to_owned(),
            hostname: name.to_owned(),
            subdomain: Some("bert-workers".to_owned()),
            address: address.to_owned(),
            labels: [("job".to_owned(), "bert".to_owned())].into(),
        }
    }

    #[test]
    fn names_as_cluster_dns_has_them() {
        let hosts = [
            host("ml", "bert-workers-1", "127.77.0.2"),
            host("ml", "bert-workers-0", "127.77.0.1"),
            host("other", "x", "127.77.0.3"),
        ];
        let services = [Selected {
            namespace: "ml".to_owned(),
            name: "bert-workers".to_owned(),
            selector: [("job".to_owned(), "bert".to_owned())].into(),
        }];
        insta::assert_snapshot!(hosts_file("127.0.0.1 localhost\n", "ml", &hosts, &services), @r"
        127.0.0.1 localhost

        # Pods on this machine
        127.77.0.1	bert-workers-0.bert-workers.ml.svc.cluster.local bert-workers-0.bert-workers.ml.svc bert-workers-0.bert-workers.ml bert-workers-0.bert-workers bert-workers-0
        127.77.0.2	bert-workers-1.bert-workers.ml.svc.cluster.local bert-workers-1.bert-workers.ml.svc bert-workers-1.bert-workers.ml bert-workers-1.bert-workers bert-workers-1
        127.77.0.3	x.bert-workers.other.svc.cluster.local x.bert-workers.other.svc x.bert-workers.other
        127.77.0.1	bert-workers.ml.svc.cluster.local bert-workers.ml.svc bert-workers.ml bert-workers
        127.77.0.2	bert-workers.ml.svc.cluster.local bert-workers.ml.svc bert-workers.ml bert-workers
        ");
    }

    #[test]
    fn the_hosts_file_comes_first() {
        let text = "passwd: files\nhosts:  mymachines resolve [!UNAVAIL=return] files dns\n";
        let wanted = "passwd: files\nhosts: files mymachines resolve [!UNAVAIL=return] dns\n";
        assert_eq!(name_service_switch(text).as_deref(), Some(wanted));
        assert_eq!(name_service_switch("hosts: files dns\n"), None);
        assert_eq!(name_service_switch(""), None);
    }
}
