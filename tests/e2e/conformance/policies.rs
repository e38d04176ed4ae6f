//! The policies of every case: the fixture of AADP §23.1, and actions for what later revisions add. `@` is the case's
//! prefix.

pub const POLICIES: &str = r#"
  - { action_type: @read.status, tier: 0 }
  - action_type: @lamp.toggle
    tier: 1
    dry_run: false
    compensating_command: @lamp.restore
    bounds: { enum: { state: ["on", "off"] }, required: [state] }
  - action_type: @lamp.restore
    tier: 1
    dry_run: false
    compensating_command: @lamp.toggle
    bounds: { enum: { state: ["on", "off"] }, required: [state] }
  - action_type: @pay.small
    tier: 2
    dry_run: false
    compensating_command: @pay.back
    cost_param: amount_eur
    bounds: { numeric: { amount_eur: { min: 0.01, max: 500 } }, required: [payee, amount_eur] }
    caps: { daily_rate: 3, eur_day: 100, eur_month: 250 }
  - action_type: @pay.fee
    tier: 2
    dry_run: false
    compensating_command: @pay.back
    bounds: { strict_params: false }
    caps: { eur_day: 50 }
  - action_type: @pay.back
    tier: 1
    dry_run: false
    compensating_command: @pay.back
    bounds: { strict_params: false }
  - action_type: @pay.brief
    tier: 2
    dry_run: false
    compensating_command: @pay.back
    cost_param: amount_eur
    bounds: { required: [amount_eur] }
    caps: { eur_day: 60 }
    obligations: [{ type: execute_within, value: 2s }]
  - action_type: @wire.send
    tier: 3
    dry_run: false
    cost_param: amount_eur
    bounds: { numeric: { amount_eur: { min: 0.01, max: 5000 } }, required: [amount_eur] }
    caps: { eur_day: 5000 }
  - action_type: @wire.brief
    tier: 3
    dry_run: false
    bounds: { strict_params: false }
    approval: { ttl: 2s }
  - action_type: @reh.a
    tier: 1
    compensating_command: @lamp.restore
    bounds: { strict_params: false }
  - action_type: @reh.b
    tier: 2
    compensating_command: @pay.back
    cost_param: amount_eur
    bounds: { required: [amount_eur] }
    caps: { daily_rate: 1, eur_day: 10 }
  - { action_type: @reh.c, tier: 3, bounds: { strict_params: false } }
  - action_type: @net.a
    tier: 1
    dry_run: false
    compensating_command: @pay.back
    cost_param: amount_eur
    bounds: { required: [amount_eur], strict_params: false }
    effects: [@money.egress]
  - action_type: @net.b
    tier: 1
    dry_run: false
    compensating_command: @pay.back
    cost_param: amount_eur
    bounds: { required: [amount_eur], strict_params: false }
    effects: [@money.egress]
  - action_type: @eff.two
    tier: 1
    dry_run: false
    compensating_command: @pay.back
    bounds: { strict_params: false }
    effects: [@bulk]
  - action_type: @pay.danger
    tier: 2
    dry_run: false
    compensating_command: @pay.back
    bounds: { strict_params: false }
    effects: [@danger]
  - action_type: @web.get
    tier: 1
    dry_run: false
    compensating_command: @pay.back
    bounds: { strict_params: false }
    param_effects:
      - param: url
        url: { hosts: [bank.example], include_subdomains: true, cidrs: [192.0.2.0/24], opaque: { builtin: true } }
        add_effects: [@egress]
  - action_type: @web.plain
    tier: 1
    dry_run: false
    compensating_command: @pay.back
    bounds: { strict_params: false }
    param_effects: [{ param: url, url: { hosts: [bank.example], opaque: { builtin: true } }, add_effects: [@web] }]
  - action_type: @web.confirm
    tier: 3
    dry_run: false
    bounds: { strict_params: false }
    param_effects: [{ param: url, url: { hosts: [bank.example], opaque: { builtin: true } }, add_effects: [@web] }]
  - action_type: @wire.treasury
    tier: 3
    dry_run: false
    cost_param: amount_eur
    bounds: { required: [amount_eur] }
    approval: { group: @treasury }
  - action_type: @bound.act
    tier: 2
    dry_run: false
    compensating_command: @pay.back
    present_bound: "https://bank.example/act"
    cost_param: amount_eur
    bounds: { required: [amount_eur] }
    caps: { eur_day: 60 }
  - action_type: @bound.confirm
    tier: 3
    dry_run: false
    present_bound: "https://bank.example/act"
    bounds: { strict_params: false }
  - action_type: @mandated
    tier: 1
    dry_run: false
    compensating_command: @pay.back
    requires_external_authorization: true
    bounds: { numeric: { n: { max: 10 } }, strict_params: false }
  - action_type: @flood
    tier: 3
    dry_run: false
    bounds: { strict_params: false }
    approval: { queue: { per_principal: 20, per_minute: 30 } }
"#;

pub const EFFECTS: &str = "
  @money.egress: { caps: { eur_day: 60 } }
  @bulk: { min_tier: 2 }
  @danger: { min_tier: 3 }
  @egress: { min_tier: 3 }
  @web: {}
";

pub const GROUPS: &str = "
  @treasury: { members: [A1, A2, P1], quorum: 2 }
";
