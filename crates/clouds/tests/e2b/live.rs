//! The same client against E2B itself, where there is a key for it. It makes one sandbox, and ends it.

use super::*;
use stead_clouds::Condition;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_runs_keeps_files_and_sleeps() {
    let setting = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let Some(key) = setting("E2B_API_KEY") else {
        println!("SKIPPED: no `E2B_API_KEY`");
        return;
    };
    let domain = setting("E2B_DOMAIN").unwrap_or_else(|| stead_clouds::e2b::DOMAIN.to_owned());
    let mut config = Config::of(Secret::new(key), &domain);
    config.api_url = setting("E2B_API_URL").unwrap_or(config.api_url);
    config.sandbox_url = setting("E2B_SANDBOX_URL");
    let client = stead_clouds::e2b::cloud(config).unwrap();
    let unique = format!("{:?}-{}", std::time::SystemTime::now(), std::process::id());
    let wish = Wish { labels: labels(&[("stead-test", &unique)]), ..Wish::default() };
    let id = client.create(&wish).await.unwrap();
    // Its own task: what fails in it is told after the sandbox is ended.
    let (client, wish) = (std::sync::Arc::new(client), std::sync::Arc::new(wish));
    let used = tokio::spawn(use_it(std::sync::Arc::clone(&client), wish, id.clone())).await;
    client.destroy(&id).await.unwrap();
    used.unwrap();
    assert_eq!(client.look(&id).await.unwrap(), Condition::Gone);
}

async fn use_it(client: std::sync::Arc<E2b>, wish: std::sync::Arc<Wish>, id: String) {
    assert_eq!(client.create(&wish).await.unwrap(), id);
    let ran = client.run(&id, "echo out; echo err >&2; exit 3", LONG).await.unwrap();
    assert_eq!(ran, Ran { exit_code: 3, output: b"out\nerr\n".to_vec() });

    let bytes = noise(100_000);
    client.upload(&id, "/tmp/deep/file", bytes.clone()).await.unwrap();
    let mut channel = client.open(&id, "/bin/sh", &["-c", "cat /tmp/deep/file; exec cat"]).await.unwrap();
    channel.write_all(b"and more").await.unwrap();
    channel.shutdown().await.unwrap();
    let mut back = Vec::new();
    channel.read_to_end(&mut back).await.unwrap();
    assert!(back == [&bytes[..], b"and more"].concat(), "{} bytes came back, or others", back.len());

    client.keep_awake(&id).await.unwrap();
    client.pause(&id).await.unwrap();
    client.pause(&id).await.unwrap();
    assert_eq!(client.look(&id).await.unwrap(), Condition::Paused);
    client.resume(&id).await.unwrap();
    assert_eq!(client.look(&id).await.unwrap(), Condition::Running);
    assert_eq!(said(&client, &id, "wc -c < /tmp/deep/file").await.trim(), "100000");
}
