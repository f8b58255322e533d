//! The test cloud itself: what it has to notice, it notices.

use crate::{API_KEY, TestCloud, labels};
use reqwest::{Method, RequestBuilder};
use serde_json::json;

fn request(test: &TestCloud, method: Method, path: &str) -> RequestBuilder {
    let url = format!("{}{path}", test.url.trim_end_matches("/api"));
    let request = stead_clouds::wire::client("test").unwrap().request(method, url).bearer_auth(API_KEY);
    request.header("X-Daytona-Source", "test").header("X-Daytona-SDK-Version", "0.205.1")
}

#[tokio::test]
async fn what_the_reference_does_not_know_is_refused_and_noticed() {
    if !crate::Machine::is_possible() {
        println!("SKIPPED: no namespaces here");
        return;
    }
    let test = TestCloud::start().await;
    let id = test.make(&labels("a")).await;
    let toolbox = |path: &str| format!("/toolbox/{id}{path}");
    let post = |path: &str| request(&test, Method::POST, path);
    let get = |path: &str| request(&test, Method::GET, path);
    let bare = stead_clouds::wire::client("test").unwrap().get(format!("{}/sandbox", test.url));
    let wrong = [
        post("/api/sandbox").json(&json!({"label": {}})),
        post("/api/sandbox").json(&json!({"autoStopInterval": "15"})),
        post("/api/sandbox").body("{}"),
        post("/api/sandbox/paginated"),
        get("/api/sandbox?label=x"),
        get("/api/sandbox?limit=0"),
        get("/api/sandbox?labels=stead"),
        get("/api/sandbox").header("X-Daytona-Sauce", "x"),
        post(&toolbox("/process/execute")).json(&json!({"command": "true", "env": {}})),
        post(&toolbox("/process/execute")).json(&json!({"cmd": "true"})),
        post(&toolbox("/process/pty")).json(&json!({"id": "a", "cols": 2000})),
        get(&toolbox("/process/pty/a/connect")),
        post(&toolbox("/files/upload-v2")).body("x"),
        post(&toolbox("/files/upload?path=/tmp/x")).body("x"),
        get(&toolbox("/nowhere")),
        get("/elsewhere"),
        bare.try_clone().unwrap(),
        bare.try_clone().unwrap().bearer_auth(API_KEY),
        bare.bearer_auth(API_KEY).header("X-Daytona-Source", "x").header("X-Daytona-SDK-Version", "0.20.0"),
    ];
    for (number, wrong) in wrong.into_iter().enumerate() {
        let what = format!("{wrong:?}");
        assert_eq!(wrong.send().await.unwrap().status(), 400, "{what}");
        assert_eq!(test.violations().len(), number + 1, "{what}");
    }
    assert_eq!(test.ids(), [id]);
}
