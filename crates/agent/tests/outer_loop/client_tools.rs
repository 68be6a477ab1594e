//! Calls that a client carries out, with trouble in the store.

use std::sync::Arc;

use belay_protocol::{
    Ack, ApprovalKind, CallChoice, ClientAnswer, ClientResult, ClientTool, ClientTools, Control, RunOptions, RunStatus,
};
use belay_testkit::faulty::{Fault, StoreOp};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;

use crate::support::{end_of, faulty, rest_of};

#[tokio::test(start_paused = true)]
async fn results_whose_commit_has_lost_its_answer_resume_the_run() {
    for unread in [false, true] {
        let script = [Scripted::call("weather", json!({})), Scripted::text("done")];
        let (setup, store) = faulty(ScriptedModel::new(script));
        let agent = setup.start().await;
        let parameters = json!({"type": "object"});
        let tool = ClientTool { name: "weather".into(), description: String::new(), parameters, strict: false };
        let tools = Arc::new(ClientTools { tools: vec![tool], choice: CallChoice::Auto, one_at_a_time: false });
        let options = RunOptions { client_tools: Some(tools.clone()), ..RunOptions::default() };
        let mut accepted = agent.one.asking("alice", "hi", options).await;
        let waits = rest_of(&mut accepted).await.waiting_for.clone().expect("waits");
        let ApprovalKind::ClientCalls { calls, .. } = &waits.kind else { panic!("{waits:?}") };
        let result = ClientResult { call: calls[0].id.clone(), text: "rain".into(), said: String::new() };
        store.plan().nth_of(StoreOp::AnswerClientCalls, 1, Fault::LoseAnswer);
        if unread {
            (1..5).for_each(|nth| store.plan().nth_of(StoreOp::ApprovalRequest, nth, Fault::Fail));
        }
        let answer = Box::new(ClientAnswer { results: vec![result], tools: Some(tools) });
        let ack = agent.one.control(Control::ClientResults { request: waits.approval, answer }).await;
        assert_eq!(matches!(ack, Ack::Refused(_)), unread, "{ack:?}");
        setup.clock.set(waits.expires_at.0);
        let end = end_of(accepted).await;
        assert_eq!((end.status, end.reply.as_deref()), (RunStatus::Completed, Some("done")), "{unread}");
        agent.shut_down().await;
    }
}
