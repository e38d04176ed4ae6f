//! `ControlService`: the kill switch (AADP §7).

use placet_core::event::SwitchScope;
use placet_core::op::{Answer, Op, Query};
use placet_wire::v1;
use placet_wire::v1::control_service_server::ControlService;
use placet_wire::v1::switch_scope::Of;
use tonic::{Request, Response, Status};

use super::{Service, convert, given};
use crate::args;
use crate::guard::caller;
use crate::reject::Refusal;

#[tonic::async_trait]
impl ControlService for Service {
    async fn get_kill_switch(
        &self,
        request: Request<v1::GetKillSwitchRequest>,
    ) -> Result<Response<v1::KillSwitch>, Status> {
        view(self.edge.ask(&caller(&request)?, Op::Query(Query::KillSwitch)).await?)
    }

    async fn set_kill_switch(
        &self,
        request: Request<v1::SetKillSwitchRequest>,
    ) -> Result<Response<v1::KillSwitch>, Status> {
        let caller = caller(&request)?;
        let v1::SetKillSwitchRequest { engaged, origin, note, scope } = request.into_inner();
        let origin = args::label("origin", origin)?;
        let note = given(&note).map(|note| args::label("note", note.to_owned())).transpose()?;
        let scope = scope.map(read_scope).transpose()?;
        view(self.edge.ask(&caller, Op::SetKillSwitch { engaged, origin, note, scope }).await?)
    }
}

/// A scope that is there but names nothing is no global switch.
fn read_scope(scope: v1::SwitchScope) -> Result<SwitchScope, Refusal> {
    match scope.of {
        Some(Of::ActionType(text)) => args::switch_scope("action_type", &text),
        Some(Of::Effect(text)) => args::switch_scope("effect", &text),
        Some(Of::Principal(text)) => args::switch_scope("principal", &text),
        None => Err(args::no_scope()),
    }
}

fn view(answer: Answer) -> Result<Response<v1::KillSwitch>, Status> {
    match answer {
        Answer::KillSwitch(view) => Ok(Response::new(convert::kill_switch(view))),
        _ => Err(Refusal::wrong_answer().into()),
    }
}
