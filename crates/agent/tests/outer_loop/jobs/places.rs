//! Places for jobs: exact, and taken by nothing but rows until there is one.

use std::time::Duration;

use belay_automation::JobsConfig;
use belay_protocol::{Ack, Control, JobNumbers, JobRequest, JobState, JobsStatus, Refusal, RoutineNumbers, UnixMillis};
use belay_testkit::scripted_model::Scripted;
use tokio::time::Instant;

use super::{always, create, done, in_state, job, order, request, runs, setup_of, until};

#[tokio::test(start_paused = true)]
async fn places_are_exact_under_a_burst_and_a_finished_job_frees_its_own_at_once() {
    let model = always(done("done").after(Duration::from_secs(10)));
    let mut setup = setup_of(model);
    setup.jobs =
        JobsConfig { max_parallel: 5, max_parallel_per_user: 5, max_open_per_user: 150, ..JobsConfig::default() };
    let mut agent = setup.start().await;
    let began = Instant::now();
    let asked = (0..200).map(|n| {
        let writer = agent.one.writer();
        tokio::spawn(async move { request(&writer, JobRequest::Create(order(&format!("job {n}")))).await })
    });
    let asked: Vec<_> = asked.collect();
    let mut refused = 0_usize;
    for asked in asked {
        match asked.await.expect("no panic") {
            Ack::Job(_) => {}
            Ack::Refused(Refusal::Busy { what, .. }) => {
                assert!(what.contains("150 of your jobs"), "{what}");
                refused += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    // Some may have been done before the last was asked for, and left their places to others.
    assert!((1..=50).contains(&refused), "{refused}");
    let mut most = 0;
    for _ in 0..200 - refused {
        let at_work = in_state(&setup, JobState::InProgress).await;
        most = most.max(at_work);
        assert!(at_work <= 5, "{at_work} are at work");
        agent.one.next().await;
    }
    assert_eq!(most, 5);
    // Rounds of ten seconds with no pause between them.
    let rounds = u32::try_from((200 - refused).div_ceil(5)).expect("few");
    assert!(began.elapsed() < rounds * Duration::from_secs(10) + Duration::from_secs(5), "{:?}", began.elapsed());
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn one_person_leaves_places_to_others() {
    let mut setup = setup_of(always(Scripted::hang()));
    setup.jobs = JobsConfig { max_parallel: 3, max_parallel_per_user: 2, ..JobsConfig::default() };
    let agent = setup.start().await;
    for n in 0..4 {
        create(&agent.one, order(&format!("mine {n}"))).await;
    }
    agent.asked(2).await;
    let theirs = create(&agent.two, order("theirs")).await;
    agent.asked(3).await;
    assert_eq!(in_state(&setup, JobState::InProgress).await, 3);
    assert_eq!(job(&setup, theirs.job_id).await.state, JobState::InProgress);
    agent.crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_thousand_waiting_jobs_are_rows_and_nothing_else() {
    let mut setup = setup_of(always(Scripted::hang()));
    setup.jobs = JobsConfig { max_parallel: 1, max_open_per_user: 2000, ..JobsConfig::default() };
    let agent = setup.start().await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    create(&agent.one, order("first")).await;
    agent.asked(1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = tasks();
    for n in 0..1000 {
        create(&agent.one, order(&format!("job {n}"))).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(tasks() <= before, "{} tasks, before {before}", tasks());
    agent.crash().await;
}

#[tokio::test(start_paused = true)]
async fn two_agents_on_one_store_begin_each_job_once() {
    // The store admits one daemon; were there two all the same, what begins a job is one transaction.
    let work = || always(done("done").after(Duration::from_secs(30)));
    let mut setup = setup_of(work());
    setup.jobs = JobsConfig { max_parallel: 6, max_parallel_per_user: 6, ..JobsConfig::default() };
    let (one, other) = (setup.start().await, setup.next_boot(work()).start().await);
    let mut ids = Vec::new();
    for n in 0..40 {
        let asked = if n % 2 == 0 { &one.one } else { &other.one };
        ids.push(create(asked, order(&format!("job {n}"))).await.job_id);
    }
    for id in ids {
        let job = until(&setup, id, JobState::Submitted).await;
        assert!(in_state(&setup, JobState::InProgress).await <= 6);
        assert_eq!((job.attempt, runs(&setup, id).await.len()), (1, 1));
    }
    let asked = [one.model.seen().len(), other.model.seen().len()];
    assert!(asked.iter().sum::<usize>() == 40 && asked.iter().all(|asked| *asked > 0), "{asked:?}");
    one.crash().await;
    other.crash().await;
}

#[tokio::test(start_paused = true)]
async fn the_status_counts_what_waits_works_and_hangs() {
    let mut setup = setup_of(always(Scripted::hang()));
    setup.jobs = JobsConfig { max_parallel: 2, ..JobsConfig::default() };
    let agent = setup.start().await;
    for n in 0..5 {
        create(&agent.one, order(&format!("job {n}"))).await;
        setup.clock.forward(Duration::from_secs(1));
    }
    agent.asked(2).await;
    let Ack::Status(status) = agent.one.control(Control::Status).await else { panic!("no status") };
    let numbers = JobNumbers {
        pending: 3,
        in_progress: 2,
        stuck: 0,
        // The third was made two seconds after the first.
        oldest_pending_at: Some(UnixMillis(1_795_000_002_000)),
    };
    assert_eq!(status.beside.jobs, Some(JobsStatus { numbers, slots: 2 }));
    assert_eq!(status.beside.routines, Some(RoutineNumbers::default()));
    // In which sessions is said to operators; for everybody else they are numbers.
    for (answer, shown) in
        [(agent.one.text("alice", "/status").await, 2), (agent.one.text_of("bob", "bob", "/status").await, 0)]
    {
        let Ack::Command(told) = answer else { panic!("no status") };
        assert!(told.reply.contains("2 running, "), "{}", told.reply);
        assert_eq!(told.reply.matches(" of job:").count(), shown, "{}", told.reply);
    }
    agent.crash().await;
}
