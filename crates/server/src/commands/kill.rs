//! `placet kill`.

use serde_json::{Map, Value, json};

use super::{field, print};
use crate::cli::{Kill, Switch, Target, exit};
use crate::client::{Client, Request, Role};

pub async fn run(target: &Target, command: &Kill) -> anyhow::Result<u8> {
    let request = match command {
        Kill::Status => Request::get("/v1/killswitch"),
        Kill::Engage(switch) => Request::post("/v1/killswitch", &body(switch, true)),
        Kill::Release(switch) => Request::post("/v1/killswitch", &body(switch, false)),
    };
    let answer = Client::new(target, Role::Operate)?.send(&request).await?;
    print(target.output, &answer, describe);
    Ok(exit::OK)
}

fn body(switch: &Switch, engaged: bool) -> Value {
    let scopes = [("action_type", &switch.action_type), ("effect", &switch.effect), ("principal", &switch.principal)];
    let scope: Map<String, Value> =
        scopes.into_iter().filter_map(|(kind, name)| Some((kind.to_owned(), json!(name.as_ref()?)))).collect();
    let scope = (!scope.is_empty()).then_some(scope);
    json!({"engaged": engaged, "origin": switch.origin, "note": switch.note, "scope": scope})
}

/// The switch that was asked about, then each scoped one that is engaged.
fn describe(answer: &Value) -> String {
    let mut lines = vec![line(answer)];
    lines.extend(answer.get("scoped").and_then(Value::as_array).into_iter().flatten().map(line));
    lines.join("\n")
}

fn line(switch: &Value) -> String {
    let scope = switch.get("scope").and_then(Value::as_object).and_then(|scope| scope.keys().next());
    let scope = scope.map_or_else(String::new, |kind| {
        let name = switch.get("scope").map(|scope| field(scope, kind)).unwrap_or_default();
        format!("{kind} {name}: ")
    });
    let word = if switch.get("engaged") == Some(&Value::Bool(true)) { "engaged" } else { "released" };
    let since = field(switch, "since");
    let mut text = if since == "-" {
        format!("{scope}{word}, never used")
    } else {
        format!("{scope}{word} since {since} by {} ({})", field(switch, "by"), field(switch, "origin"))
    };
    if field(switch, "note") != "-" {
        text.push_str(&format!(": {}", field(switch, "note")));
    }
    if switch.get("policy").is_some_and(Value::is_string) {
        text.push_str(&format!("; policy meanwhile: {}", field(switch, "policy")));
    }
    if field(switch, "warning") != "-" {
        text.push_str(&format!("\nwarning: {}", field(switch, "warning")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: nobody who looks at the switch misses a scoped one.
    #[test]
    fn scoped_switches_are_shown_below_the_global_one() {
        let scoped = json!({"engaged": true, "since": "T", "by": "o", "origin": "x", "note": "n", "scope": {"effect": "money.egress"}});
        let text = describe(&json!({"engaged": false, "since": null, "scoped": [scoped]}));
        assert_eq!(text, "released, never used\neffect money.egress: engaged since T by o (x): n");
        let switch = Switch {
            origin: "o".to_owned(),
            note: Some("why".to_owned()),
            action_type: None,
            effect: None,
            principal: Some("p".to_owned()),
        };
        let expected = json!({"engaged": true, "origin": "o", "note": "why", "scope": {"principal": "p"}});
        assert_eq!(body(&switch, true), expected);
    }
}
