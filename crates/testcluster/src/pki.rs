//! The cluster's certificate authority, and the kubeconfigs that come from it.
//!
//! Every client is a certificate with its user name and groups, so a test can be whoever it wants
//! to be in the eyes of RBAC.

use std::path::{Path, PathBuf};

use k8s_openapi::ByteString;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::json;

use crate::Error;
use crate::process::write_private;

#[derive(Debug)]
pub(crate) struct Pki {
    dir: PathBuf,
    authority: Issuer<'static, KeyPair>,
    certificate: String,
}

impl Pki {
    /// Makes the authority, the API server's certificate and the key that signs service account tokens.
    /// `more_names` are addresses of the API server beside the loopback one.
    pub(crate) fn create(dir: PathBuf, more_names: &[String]) -> Result<Self, Error> {
        std::fs::create_dir_all(&dir).map_err(Error::io("create", &dir))?;
        let mut params = CertificateParams::new([])?;
        params.distinguished_name.push(DnType::CommonName, "trainyard-test-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.pem();
        write_private(&dir.join("ca.crt"), &certificate)?;
        write_private(&dir.join("ca.key"), &key.serialize_pem())?;
        let pki = Self { dir, authority: Issuer::new(params, key), certificate };

        let names =
            ["localhost", "127.0.0.1", "kubernetes.default.svc", "kubernetes.default"].map(String::from);
        pki.issue("apiserver", "kube-apiserver", &[], &[&names, more_names].concat())?;

        let tokens = KeyPair::generate()?;
        write_private(&pki.path("service-accounts.key"), &tokens.serialize_pem())?;
        write_private(&pki.path("service-accounts.pub"), &tokens.public_key_pem())?;
        Ok(pki)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Writes a certificate and its key, for a server when it has names.
    pub(crate) fn issue(
        &self,
        file: &str,
        user: &str,
        groups: &[&str],
        names: &[String],
    ) -> Result<(), Error> {
        let (certificate, key) = self.sign(user, groups, names)?;
        write_private(&self.path(&format!("{file}.crt")), &certificate)?;
        write_private(&self.path(&format!("{file}.key")), &key)
    }

    /// A certificate and its key; for a server when it has names.
    fn sign(&self, user: &str, groups: &[&str], names: &[String]) -> Result<(String, String), Error> {
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, user);
        if groups.len() > 2 {
            return Err(Error::TooManyGroups { user: user.to_owned() });
        }
        // A group is an organization. rcgen keeps one value per attribute type; naming the type by
        // its number makes room for the second one that service accounts have.
        for (group, kind) in
            groups.iter().zip([DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])])
        {
            params.distinguished_name.push(kind, *group);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![if names.is_empty() {
            ExtendedKeyUsagePurpose::ClientAuth
        } else {
            ExtendedKeyUsagePurpose::ServerAuth
        }];
        let key = KeyPair::generate()?;
        Ok((params.signed_by(&key, &self.authority)?.pem(), key.serialize_pem()))
    }

    /// Writes a kubeconfig for a user in at most two groups, with everything inside so that it can be copied elsewhere.
    pub(crate) fn kubeconfig(
        &self,
        file: &Path,
        server: &str,
        user: &str,
        groups: &[&str],
    ) -> Result<(), Error> {
        let (certificate, key) = self.sign(user, groups, &[])?;
        let inline = |text: &str| ByteString(text.as_bytes().to_vec());
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {
                "server": server,
                "certificate-authority-data": inline(&self.certificate),
            }}],
            "users": [{"name": user, "user": {
                "client-certificate-data": inline(&certificate),
                "client-key-data": inline(&key),
            }}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user, "namespace": "default"}}],
            "current-context": "test",
        });
        write_private(file, &format!("{config:#}\n"))
    }
}
