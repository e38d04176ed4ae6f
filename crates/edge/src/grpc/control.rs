//! `ControlService`: the kill switch (AADP §7).

use placet_core::op::{Answer, Op, Query};
use placet_wire::v1;
use placet_wire::v1::control_service_server::ControlService;
use tonic::{Request, Response, Status};

use super::{Service, convert};
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
        let v1::SetKillSwitchRequest { engaged, origin } = request.into_inner();
        let origin = args::label("origin", origin)?;
        view(self.edge.ask(&caller, Op::SetKillSwitch { engaged, origin, note: None, scope: None }).await?)
    }
}

fn view(answer: Answer) -> Result<Response<v1::KillSwitch>, Status> {
    match answer {
        Answer::KillSwitch(view) => Ok(Response::new(convert::kill_switch(view))),
        _ => Err(Refusal::wrong_answer().into()),
    }
}
