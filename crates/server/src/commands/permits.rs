//! `placet permit`.

use serde_json::{Value, json};

use super::{field, print};
use crate::cli::{Permit, Target, exit};
use crate::client::{Client, Request, Role};

pub async fn run(target: &Target, command: &Permit) -> anyhow::Result<u8> {
    let Permit::Check { permit_id } = command;
    // A permit is a capability: it travels in the body, because paths end up in logs.
    let request = Request::post("/v1/permits/check", &json!({ "permit_id": permit_id }));
    let answer = Client::new(target, Role::Decide)?.send(&request).await?;
    let usable = answer.get("usable") == Some(&Value::Bool(true));
    print(target.output, &answer, |answer| {
        if usable {
            format!("usable until {}  {}", field(answer, "deadline"), field(answer, "evidence_id"))
        } else {
            format!("not usable: {}", field(answer, "reason"))
        }
    });
    Ok(if usable { exit::OK } else { exit::DENY })
}
