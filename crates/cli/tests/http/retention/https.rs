//! The same over TLS: who listens there has to be who they say they are.

use super::webhook::{Ear, hear, is_signed, pending};
use crate::rig::{Rig, wait_for};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// An authority of its own, and what it has signed.
struct Authority {
    dir: tempfile::TempDir,
}

impl Authority {
    fn new(name: &str) -> Self {
        let authority = Self { dir: tempfile::tempdir().unwrap() };
        let (key, cert) = (authority.path("ca.key"), authority.path("ca.pem"));
        let make = ["req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-days", "2"];
        let name = format!("/CN={name}");
        let is_one = ["-subj", &name, "-addext", "basicConstraints=critical,CA:TRUE"];
        let mut openssl = Command::new("openssl");
        openssl.args(make).args(is_one).arg("-keyout").arg(key).arg("-out").arg(cert);
        run(openssl);
        authority
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn root(&self) -> String {
        self.path("ca.pem").to_str().unwrap().to_owned()
    }

    /// Says that somebody has this name, for so many days from now.
    fn sign(&self, name: &str, days: &str) -> (PathBuf, PathBuf) {
        let (key, request, cert) = (self.path("key"), self.path("request"), self.path("cert"));
        let mut openssl = Command::new("openssl");
        let make = ["req", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-subj", "/CN=hook"];
        openssl.args(make).arg("-keyout").arg(&key).arg("-out").arg(&request);
        run(openssl);
        let more = self.path("more");
        std::fs::write(&more, format!("subjectAltName={name}\nextendedKeyUsage=serverAuth\n")).unwrap();
        let mut openssl = Command::new("openssl");
        openssl.args(["x509", "-req", "-CAcreateserial", "-days", days, "-in"]).arg(&request).arg("-CA");
        openssl.arg(self.root()).arg("-CAkey").arg(self.path("ca.key")).arg("-extfile").arg(&more);
        openssl.arg("-out").arg(&cert);
        run(openssl);
        (cert, key)
    }
}

fn run(mut command: Command) {
    let output = command.output().unwrap_or_else(|error| panic!("`openssl`: {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Listens with a certificate.
fn listen(cert: &Path, key: &Path) -> Ear {
    let chain = vec![CertificateDer::from_pem_file(cert).unwrap()];
    let key = PrivateKeyDer::from_pem_file(key).unwrap();
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(ring).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/hook?user=hunter2", listener.local_addr().unwrap());
    let ear = Ear { url, heard: Arc::default() };
    let all = Arc::clone(&ear.heard);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut met = Ok(());
            while met.is_ok() && connection.is_handshaking() {
                met = connection.complete_io(&mut stream).map(drop);
            }
            if met.is_ok() {
                hear(rustls::StreamOwned::new(connection, stream), &all, 0);
            }
        }
    });
    ear
}

#[test]
fn a_webhook_is_told_over_tls_by_whom_the_machine_trusts() {
    let authority = Authority::new("trusted");
    let (cert, key) = authority.sign("IP:127.0.0.1", "2");
    let ear = listen(&cert, &key);
    let rig = Rig::with_all(&ear.config(), &[], &[("SSL_CERT_FILE", &authority.root())]);
    let project = rig.project("told");
    rig.delete(&format!("/api/projects/{project}")).is(204);
    is_signed(&ear.wait(1)[0]);
    wait_for("the end of it", || (pending(&rig, &project) == [false]).then_some(()));
}

#[test]
fn a_webhook_with_a_wrong_certificate_hears_nothing_and_it_is_told_why() {
    let (authority, other) = (Authority::new("trusted"), Authority::new("other"));
    for (case, (cert, key), why) in [
        ("of somebody whom nobody trusts", other.sign("IP:127.0.0.1", "2"), "UnknownIssuer"),
        ("for another name", authority.sign("DNS:elsewhere.example", "2"), "not valid for name"),
    ] {
        let ear = listen(&cert, &key);
        let rig = Rig::with_all(&ear.config(), &[], &[("SSL_CERT_FILE", &authority.root())]);
        let project = rig.project("wary");
        rig.delete(&format!("/api/projects/{project}")).is(204);
        let line = wait_for("somebody to be told", || {
            let log = rig.log();
            log.lines().find(|line| line.contains("the webhook failed; later again")).map(str::to_owned)
        });
        assert!(line.contains("invalid peer certificate") && line.contains(why), "{case}: {line}");
        assert!(!rig.log().contains("hunter2"), "{case}: {}", rig.log());
        assert_eq!(pending(&rig, &project), [true], "{case}: it is tried again");
        assert_eq!(ear.all().len(), 0, "{case}: not a word was said");
    }
}
