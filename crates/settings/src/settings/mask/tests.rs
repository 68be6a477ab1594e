//! Tests of hidden and shown values.

use serde_json::json;

use super::*;

#[test]
fn what_may_be_a_secret_is_hidden_by_its_name_wherever_it_stands() {
    for (name, value, shown) in [
        ("extra_body", json!({"api_key": "hush"}), json!({"api_key": MASK})),
        ("extra_body", json!({"apiKey": "hush", "top_k": 4}), json!({"apiKey": MASK, "top_k": 4})),
        ("extra_body", json!({"a": [{"b": {"X-Auth-Token": "hush"}}]}), json!({"a": [{"b": {"X-Auth-Token": MASK}}]})),
        ("extra_body", json!({"api_keys": "hush", "keys": ["hush"]}), json!({"api_keys": MASK, "keys": [MASK]})),
        ("extra_body", json!({"tokens": "hush", "whatever": "hush"}), json!({"tokens": MASK, "whatever": MASK})),
        (
            "extra_body",
            json!({"model": "m", "reasoning": {"effort": "low", "enabled": true}, "stop": ["hush"]}),
            json!({"model": "m", "reasoning": {"effort": "low", "enabled": true}, "stop": [MASK]}),
        ),
        (
            "extra_body",
            json!({"h": [{"name": "Authorization", "value": "hush"}], "x_env": "hush", "model": "Token hush"}),
            json!({"h": [{"name": MASK, "value": MASK}], "x_env": MASK, "model": "Token ***"}),
        ),
        (
            "env",
            json!({"GITHUBTOKEN": "hush", "DB": "Server=h;Password=hush"}),
            json!({"GITHUBTOKEN": MASK, "DB": MASK}),
        ),
        ("env", json!({"PATH": "/bin", "DSN": "host=h password=hush"}), json!({"PATH": "/bin", "DSN": MASK})),
        ("headers", json!({"X-Api-Keys": "hush", "Accept": "x/y"}), json!({"X-Api-Keys": MASK, "Accept": "x/y"})),
        ("headers", json!([{"name": "x", "value": "hush"}]), json!([{"name": MASK, "value": MASK}])),
        (
            "list",
            json!([{"name": "Authorization", "value": "hush"}]),
            json!([{"name": "Authorization", "value": MASK}]),
        ),
        ("list", json!([{"name": "Accept", "value": "x/y"}]), json!([{"name": "Accept", "value": "x/y"}])),
        ("accesstoken", json!("hush"), json!(MASK)),
        ("openaikey", json!("hush"), json!(MASK)),
        ("jwt", json!("hush"), json!(MASK)),
        ("passcode", json!("hush"), json!(MASK)),
        ("private", json!("hush"), json!(MASK)),
        ("tokens", json!(12), json!(12)),
        ("note", json!("ApiKey hush"), json!("ApiKey ***")),
        ("note", json!("Server=h;Password=hush;Mode=x"), json!("Server=h;Password=***;Mode=x")),
        ("note", json!("host=h password = 'hush hush' port=1"), json!("host=h password = *** port=1")),
        ("url", json!("https://h/p#access_token=hush"), json!("https://h/p")),
        ("url", json!("https://h/p;key=hush/q"), json!("https://h/p;key=***")),
        ("url", json!("https://h/p;v=hush/q"), json!("https://h/p;v=***/q")),
        (
            "command",
            json!(["x", "-k", "hush", "--header=X-Key:hush", "-H", "Authorization: Token hush", "--jwt", "hush"]),
            json!(["x", "-k", MASK, "--header=X-Key:***", "-H", "Authorization:***", "--jwt", MASK]),
        ),
        (
            "command",
            json!(["--opt=Server=h;Pwd=hush", "--json={\"api_key\": \"hush\", \"n\": 1}", "--port=80", "a:b"]),
            json!(["--opt=Server=h;Pwd=***", "--json={\"api_key\":***", "--port=80", "a:b"]),
        ),
        ("extra_body", json!({"auth": {"user": "me", "n": 1}}), json!({"auth": {"user": MASK, "n": MASK}})),
        ("extra_body", json!({"pin_token": 1234, "max_tokens": 9}), json!({"pin_token": MASK, "max_tokens": 9})),
        ("env", json!({"API_KEY_2": "hush", "MODE": "strict"}), json!({"API_KEY_2": MASK, "MODE": "strict"})),
        ("headers", json!({"Authorization": ["Bearer hush"]}), json!({"Authorization": [MASK]})),
        ("headers", json!({"x": "bearer hush"}), json!({"x": MASK})),
        ("note", json!("bearer hush"), json!("bearer ***")),
        ("mcp", json!({"auth": {"url": "https://h/p"}}), json!({"auth": {"url": "https://h/p"}})),
        ("token", json!("hush"), json!(MASK)),
        ("token", json!(""), json!("")),
        ("keyboard", json!("qwerty"), json!("qwerty")),
        ("token_file", json!("/run/secrets/token"), json!("/run/secrets/token")),
        ("api_key_files", json!(["/run/secrets/key"]), json!(["/run/secrets/key"])),
        ("token_env", json!("BELAY_TOKEN"), json!("BELAY_TOKEN")),
        ("token_env", json!("sk-hush"), json!(MASK)),
        ("url", json!("https://u:hush@h/p"), json!("https://u:***@h/p")),
        ("url", json!("https://hush@h/p"), json!("https://***@h/p")),
        ("url", json!("https://h/p?key=hush&api-version=2"), json!("https://h/p?key=***&api-version=2")),
        ("url", json!("https://h/p?hushhushhushhushhush"), json!("https://h/p?***")),
        ("url", json!("https://h/p?a=&b"), json!("https://h/p?a=&b")),
        ("url", json!("https://h/p"), json!("https://h/p")),
        ("note", json!("see https://u:hush@h/ and x"), json!("see https://u:***@h/ and x")),
        (
            "command",
            json!(["serve", "--api-key", "hush", "--token=hush", "KEY=hush", "--mode", "fast", "X-Api-Key: hush"]),
            json!(["serve", "--api-key", MASK, "--token=***", "KEY=***", "--mode", "fast", "X-Api-Key:***"]),
        ),
        (
            "command",
            json!(["--url=https://h/?k=hush", "--token", "--x"]),
            json!(["--url=https://h/?k=***", "--token", "--x"]),
        ),
    ] {
        let masked = masked(name, &value);
        assert_eq!(masked, shown, "{name} {value}");
        assert!(!masked.to_string().contains("hush"), "{name} {value}");
    }
}
