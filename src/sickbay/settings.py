"""Settings: frozen groups, validated once at start. Loading (TOML plus environment) lives in `settings_load`.

Everything a person may tune is here with its unit, its default and why that default; nothing else reads the
environment. Core gets the narrowest slice: a Policy for one pool, never Settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sickbay import __version__
from sickbay.model import Verb

# How far `policy.max_verb` lets us go, weakest first. A fresh install only observes.
LEVELS = ("OBSERVE", "CORDON", "DRAIN", "RESET_GPU", "REBOOT", "POWER_CYCLE", "REPLACE")

ALL_VERBS = frozenset(Verb)

# Who may cause what (plan, section 6). A source that is not listed may cause nothing.
CEILINGS: Mapping[str, frozenset[Verb]] = {
    "agent": ALL_VERBS,
    "monitor": ALL_VERBS,
    "operator": ALL_VERBS,
    "condition": frozenset({Verb.CORDON, Verb.DRAIN, Verb.VERIFY}),
    "sweep": frozenset({Verb.CORDON, Verb.VERIFY}),  # it looks at idle nodes, so there is no work to move
    "alertmanager": frozenset({Verb.CORDON, Verb.VERIFY}),
    "webhook": frozenset({Verb.CORDON, Verb.VERIFY}),
    "llm": frozenset({Verb.CORDON, Verb.VERIFY}),
    "job": frozenset(),
}


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `count` nodes and at most `percent` of the pool; the smaller counts, but never below `at_least`. A
    `count` or `percent` of 0 means none."""

    count: int = 1_000_000
    """Nodes. As good as unlimited by default, so that `percent` decides."""
    percent: float = 100.0
    """Share of the pool, 0 to 100."""
    at_least: int = 1
    """Small-pool rule, nodes: 10 % of four nodes would be none, and a sick node could never be treated."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What we may do to the nodes of one pool. Every key can be overridden per pool."""

    max_verb: str = "OBSERVE"
    """How far we may go: one of LEVELS. OBSERVE by default: trust is earned rung by rung. Hurt jobs are stopped and
    restarted from DRAIN on."""
    max_out: Limit = Limit(percent=10.0, at_least=2)
    """Nodes out of service at once: our cordons, ESCALATED, NotReady and others' cordons together."""
    at_once: Limit = Limit(percent=5.0, at_least=1)
    """Nodes treated at the same time."""
    max_out_fleet: Limit = Limit(percent=10.0, at_least=2)
    """As `max_out`, counted over all pools: pools may share what breaks them."""
    max_out_rack: Limit = Limit(percent=50.0, at_least=2)
    """As `max_out`, within one rack: a rack that is mostly out has a cause of its own, which no reboot cures."""
    max_out_domain: Limit = Limit(percent=50.0, at_least=1)
    """As `max_out`, within one NVLink domain: a job that needs the whole domain dies with any of its nodes."""
    per_window: Mapping[str, int] = field(
        default_factory=lambda: {"CORDON": 20, "RESET_GPU": 20, "REBOOT": 10, "POWER_CYCLE": 6, "REPLACE": 4}
    )
    """Grants per pool in `window_s`, per verb; fewer for the rungs that cost more. Verbs left out keep their
    default. 0: none. DRAIN counts drains that evict work; it is not counted unless named here."""
    window_s: float = 3600.0
    """Seconds of watch time that `per_window`, `jobs_hurt_per_window` and the breaker look back. One hour: long enough
    to see a bad change roll through a fleet, short enough to go on the same day."""
    jobs_hurt_per_window: int = 8
    """Running jobs that our drains may stop in `window_s`."""
    approval: tuple[str, ...] = ("REPLACE",)
    """Verbs that wait for `sickbay case approve`; DRAIN: only where work would be evicted. REPLACE by default: it
    cannot be undone, and capacity may be gone."""
    windows: tuple[str, ...] = ()
    """Maintenance windows in UTC, "Mon-Fri 02:00-05:00", a whole day as "Sun 00:00-24:00"; empty = always. Only `idle`
    faults wait for them. Where none opens before `waiting_s` (or `queued_s`) is over, people are told."""
    settle_s: float = 10.0
    """XIDs arrive in families: drain and the choice of rung wait this many seconds after the newest finding. What an
    agent only repeats puts them off by as much again at most."""
    waiting_s: float = 86_400.0
    """Seconds a case waits for a seat, an approval or a window before it is DEFERRED. A day: a person will have
    looked."""
    hold_s: float = 604_800.0
    """Longest wait in HOLDING, seconds, for a job to end (idle faults) before a person is asked. A week, as long as
    jobs run."""
    checkpoint_s: float = 600.0
    """Longest wait, seconds, for a newer checkpoint before the drain goes ahead."""
    cordon_s: float = 120.0
    """Seconds for a cordon to be seen on the node; it is one small write, so longer means that something is wrong."""
    drain_s: float = 1_800.0
    """Seconds for a node to become empty. Half an hour: pods with a long grace period do end."""
    collect_s: float = 300.0
    """Seconds for gathering evidence. Best effort: a node that answers nothing must not keep its case waiting."""
    queued_s: float = 86_400.0
    """Seconds a drained node waits for its treatment's turn before a person is asked."""
    verify_s: float = 1_800.0
    """Seconds for the examination after a treatment. A level-2 diagnostic takes minutes; half an hour is stuck."""
    return_s: float = 600.0
    """Seconds for the node to be allocatable again with its full GPU count: device plugins take minutes after a
    boot."""
    cancel_s: float = 3_600.0
    """Seconds to take our marks off after a cancel. An hour: a treatment that was sent has as long to finish first."""
    suspect_s: float = 900.0
    """Seconds a fault may stay SUSPECTED without being confirmed: three cycles of the agent."""
    unreachable_s: float = 300.0
    """A node not ready for this many seconds will not answer a drain. As Kubernetes' own default for lost nodes."""
    quiet_s: float = 14_400.0
    """Seconds without a new case for the same fault on the same boot and device, after a person's abort, a deferral or
    a time-out (an hour at least after the last two). A new boot or another device is new evidence; `sickbay case reopen
    NODE` ends it."""
    flap_window_s: float = 86_400.0
    """Seconds in which flaps (a fault that cleared by itself) are counted."""
    flaps_accepted: int = 2
    """Flaps of one fault in `flap_window_s` that are believed; after that it must be treated."""
    relapse_s: float = 604_800.0
    """The same fault on the same node or part within this many seconds starts above the highest rung ever tried."""
    breaker_failures: int = 5
    """Cases escalated in `window_s` that stop all new disruption in the fleet."""
    breaker_quiet_s: float = 3_600.0
    """Seconds without a further escalation after which the breaker closes by itself."""
    evict: bool = True
    """May a drain evict work? False: wait until the node is empty."""


@dataclass(frozen=True, slots=True)
class JobPolicy:
    """How hurt jobs are brought back."""

    enabled: bool = True
    """Restart hurt jobs at all? False: jobs are watched and blamed, never touched."""
    stall_s: float = 300.0
    """Seconds without a step before a job may count as stalled; below that, a slow checkpoint looks the same."""
    stall_steps: float = 5.0
    """Stalled: no step for max(stall_s, stall_steps x median step)."""
    stalled_s: float = 60.0
    """Seconds to collect stacks and flight-recorder dumps before the gang is stopped: afterwards they are gone."""
    stopping_s: float = 300.0
    """Seconds for the whole gang to stop."""
    examining_s: float = 120.0
    """Seconds for the light checks on all nodes of the job, side by side."""
    capacity_s: float = 3_600.0
    """Seconds to wait for enough good nodes before the owner is told."""
    arrival_s: float = 900.0
    """Seconds for a node to come that an autoscaler makes for a job. Karpenter gives a machine as long to register."""
    arrivals: int = 3
    """Nodes made for a job that may turn out sick or not come, in a row, before it is stopped and its owner told. After
    `capacity_s` they are asked for anew."""
    restarting_s: float = 900.0
    """Seconds from the restart to its first step: image pull, init and restore of a large checkpoint."""
    barren_limit: int = 5
    """Attempts in a row that may end without a new complete checkpoint before we stop and tell the owner. Five: on
    16,000 GPUs, three within one checkpoint interval happen by chance. Not counted: what three or more jobs fail by
    alike, and up to 32 attempts in a row that do not begin though nothing is wrong with their nodes (a registry, fabric
    or file system that is away); those are tried later and later. What a sick node ends is counted."""


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """The central loop."""

    period_s: float = 10.0
    """Longest sleep, seconds, near a deadline: watch time advances by a planned sleep and one of these at most."""
    idle_period_s: float = 60.0
    """Longest sleep, seconds, while nothing is open. Events wake the loop earlier."""
    workers: int = 32
    """Actions under way at the same time. Each is one call of at most 10 s, and mostly waits: an API server lets
    evictions that meet in one disruption budget sleep for half a second."""
    notice_s: float = 5.0
    """Seconds in which notices about one case are gathered into one."""
    common_cause_nodes: int = 3
    """Nodes of one job that show the same code within `common_cause_s`: then the cause is common, and no node is
    treated."""
    common_cause_s: float = 60.0
    """Seconds; see `common_cause_nodes`."""
    common_factor_s: float = 600.0
    """Seconds in which nodes that share a driver, image, rack or switch are compared. Longer than a rolling reboot
    takes."""
    common_share: float = 0.25
    """Share of the nodes of one factor (0 to 1) with the same code in `common_factor_s` that makes it a common
    cause."""
    absent_nodes: int = 3
    """Nodes that are away at the same time before they can be one case about what they share (all of a pool of two or
    three is enough). None of them is treated."""
    absent_share: float = 0.05
    """Share of the fleet (0 to 1) away at the same time that is one such case. A twentieth: single failures, each
    treated within the hour, never add up to it."""
    absent_factor_share: float = 0.25
    """As `absent_share`, of the nodes of one rack, switch, zone, pool or image: a rack that loses its switch is a small
    share of a large fleet."""
    company_s: float = 600.0
    """Seconds for which the treatment of a node that went away alone waits for others to go away too. Ten minutes: what
    takes down many (certificates, a roll-out) rarely does it within one."""
    silent_share: float = 0.10
    """Share of a pool's instruments (0 to 1) silent at once that is one notice about instruments, not many about
    nodes."""
    heartbeat_s: float = 900.0
    """Seconds without a word from an agent before we say that we cannot see its node: three missed cycles of 300 s."""
    archive_days: float = 400.0
    """Days for which ended cases and recoveries are kept. A year and a month, so that a month has its like."""
    listen: str = ""
    """Address of /metrics, /healthz, /readyz and /livez, such as "0.0.0.0:9465". Empty: closed. They ask for no token:
    let only Prometheus and the kubelet reach it."""
    probe_listen: str = ""
    """Address of /healthz, /readyz and /livez alone, such as "0.0.0.0:9466", with places of its own: whatever happens
    at `listen`, probes are answered. For the kubelet; nobody else need reach it. Empty: none."""


@dataclass(frozen=True, slots=True)
class SqliteSettings:
    """The embedded store's file."""

    synchronous: str = "FULL"
    """FULL waits for the disk at every commit, NORMAL at checkpoints only (a power cut may lose the last commits).
    FULL by
    default: a treatment must be on disk before it is sent, or it could be sent twice."""
    busy_s: float = 10.0
    """Seconds to wait for another process that is writing, such as a person's command."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The shell on each node. Defaults are those of the original health check suite where it has them."""

    node_name: str = ""
    """The node's name; empty: the host name. On Kubernetes it is given by the downward API."""
    check_interval_s: float = 300.0
    """Seconds between cycles of the light checks. The kernel log is followed all the time besides."""
    dcgm_l2_interval_s: float = 21_600.0
    """Seconds between level-2 diagnostics on an idle node. Six hours: they occupy the GPUs for minutes."""
    check_timeout_s: float = 900.0
    """Seconds for one check; then its answer is UNKNOWN, which never disrupts."""
    dcgm_timeout_s: float = 900.0
    """Seconds for a level-2 diagnostic."""
    dcgm_l4_timeout_s: float = 9_000.0
    """Seconds for a level-4 diagnostic: two hours and a half, as it burns in every GPU."""
    nccl_timeout_s: float = 1_800.0
    """Seconds for the all-reduce test across nodes."""
    efa_timeout_s: float = 180.0
    """Seconds for the loopback test of one network adapter."""
    light_checks: tuple[str, ...] = (
        "nvidia-smi", "efa-enumeration", "topology", "nvlink-errors", "gpu-slowdown", "pcie", "dcgm-health",
        "infiniband", "efa-counters", "peermem", "stuck-processes", "local-disks", "disk-space", "shared-storage",
        "host-memory", "clock", "instance-events",
    )  # fmt: skip
    """The checks of each cycle, by name or by the original suite's number. None of them occupies a GPU."""
    kernel_log_lines: int = 4_000
    """Kernel lines read back when the agent starts without a cursor."""
    max_retired_pages_sbe: int = 60
    """Pages retired for single-bit errors above which a GPU is reported; 64 is where the vendor replaces it."""
    label: bool = True
    """Publisher kubernetes: label the node (status, severity, last-check)? Off: the condition and the annotation say
    it."""
    taint: bool = True
    """Standalone mode: may the agent taint its node? In managed mode the controller cordons, so that limits hold."""
    mode: str = "managed"
    """managed: the controller decides, and reserves a node before a deep check. standalone: no controller; the agent
    runs level-2 diagnostics on an idle node by itself and labels or taints its node, as the original suite does."""
    publishers: tuple[str, ...] = ("stdout",)
    """Where findings go: kubernetes (condition, labels and annotation of the node), http (the controller's ingest),
    stdout (JSON lines), textfile (for node_exporter), emf (CloudWatch embedded metric format on standard output)."""
    state_dir: str = "/var/lib/sickbay"
    """Folder on the node for the cursor, the latched verdicts, the GPU map and the spool. It must survive the agent."""
    ingest_url: str = ""
    """Publisher http: the controller's ingest, such as "https://sickbay.example.com:8443"."""
    token_file: str = ""
    """Publisher http: file with this node's token (`sickbay token NODE` on the controller makes one)."""
    ca_file: str = ""
    """Publisher http: certificates to trust besides the system's."""
    spool_mb: int = 16
    """Publisher http: room on disk for reports that could not be sent. When it is full the oldest go."""
    textfile_dir: str = "/var/lib/node_exporter/textfile_collector"
    """Publisher textfile: the folder that node_exporter reads."""
    listen: str = "127.0.0.1:9464"
    """Address of /metrics and /healthz; empty: none."""
    kmsg: str = "/dev/kmsg"
    """The kernel log's device. Where it cannot be read, journald is followed instead."""
    host_root: str = "/"
    """Where the node's own root is. In a container that mounts it: "/host"; with hostPID and no mount: "/proc/1/root".
    Files are read below it, and commands run in it by chroot."""
    instance_type: str = ""
    """The node's type where the machine's metadata does not say, such as "p5.48xlarge"; on Kubernetes its label."""
    profiles_file: str = ""
    """An instance-profiles.conf of the original suite, or a TOML file of ours; its rows go before the built-in ones."""
    shared_paths: tuple[str, ...] = ()
    """Folders on shared file systems (FSx for Lustre, NFS) that must answer. Empty: those found in /proc/mounts."""
    condition_owner: str = "agent"
    """Who sets the condition GPUProblem: agent, or npd (node-problem-detector, fed by `sickbay npd-check`)."""
    host_metrics_s: float = 60.0
    """Seconds between host metrics: CPU, memory, disk, network, GPU use. As the originals' CloudWatch agent."""
    allow_inject: bool = False
    """May `sickbay inject` rehearse faults on this node? Off: a rehearsal nobody announced looks like a real fault."""


@dataclass(frozen=True, slots=True)
class IngestSettings:
    """The controller's door for agents that no platform carries: ECS, Slurm, bare machines."""

    listen: str = ""
    """Address such as "0.0.0.0:8443". Empty: closed."""
    secret_file: str = ""
    """File with one secret a line; tokens are made with the first and accepted by any. Needed when `listen` is set."""
    cert_file: str = ""
    """TLS certificate chain, PEM. Empty: plain HTTP, for behind a proxy or on loopback."""
    key_file: str = ""
    """TLS private key, PEM."""
    connections_per_source: int = 64
    """Connections that one address may have open at a time. An agent needs one; more are for several agents behind one
    NAT or proxy, where it may have to be raised. In all there are 2,048 at most, and 256 fewer than this process may
    open files."""


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """The platform Kubernetes: whom we look after, and how gently."""

    kubeconfig: str = ""
    """File that says how to reach the cluster. Empty: the pod we run in, else KUBECONFIG, else ~/.kube/config."""
    context: str = ""
    """Context of the kubeconfig; empty: its current one."""
    namespace: str = "sickbay"
    """Where our records, our lease and our Jobs live."""
    prefix: str = "gpu-healthcheck.aws-samples.io"
    """Prefix of our labels, taints and annotations: the original suite's, so that its users' queries keep working."""
    gpu_selector: str = "nvidia.com/gpu.present=true"
    """Label selector of the nodes we look after. Of others only those are read, once, that still carry our mark."""
    gpu_resource: str = "nvidia.com/gpu"
    """The resource that GPUs are counted by."""
    pool_labels: tuple[str, ...] = (
        "sickbay.dev/pool", "karpenter.sh/nodepool", "eks.amazonaws.com/nodegroup", "node.kubernetes.io/instance-type",
    )  # fmt: skip
    """Labels that name a node's pool; the first one it carries counts."""
    on_demand_pools: tuple[str, ...] = ()
    """Pools whose nodes an autoscaler makes when pods wait and removes when they are idle, besides Karpenter's, which
    are known by themselves: a job there is let run with fewer good nodes than it needs, and the rest come for it."""
    rack_labels: tuple[str, ...] = ("sickbay.dev/rack", "topology.k8s.aws/network-node-layer-3")
    """Labels that name a node's rack or switch."""
    domain_labels: tuple[str, ...] = ("sickbay.dev/nvlink-domain", "nvidia.com/gpu.clique")
    """Labels that name a node's NVLink domain."""
    conditions: tuple[str, ...] = ()
    """Node conditions of others that we believe, as Draino does: "Type" (= True, at once) or "Type=Status,60s"."""
    drain: str = "gpu"
    """Whom a drain evicts before a GPU is reset or a node examined: gpu (pods that ask for GPUs) or all. Before a
    REBOOT, POWER_CYCLE or REPLACE it is all: the machine goes down with everything on it."""
    evict_bare: bool = True
    """May a drain evict pods without a controller? They do not come back by themselves. On: a gang's pods often are."""
    evict_empty_dir: bool = True
    """May a drain evict pods that use emptyDir? What is in it is lost. On: nearly every training pod has one."""
    force: bool = False
    """Delete pods that a disruption budget still protects when the drain's time is up? Off: a person is asked."""
    out_of_service: bool = False
    """Taint a node whose kubelet is dead with node.kubernetes.io/out-of-service, so that its pods can be replaced? Off:
    it is only right when the machine is surely down, which we can prove on EC2 only."""
    gate: bool = False
    """Keep work off every new GPU node until it has passed its checks? Only in pools whose max_verb is CORDON or more:
    nobody could open the gate else. Successors of replaced nodes always are."""
    image: str = f"sickbay/agent:{__version__}"
    """Image of our Jobs on nodes (checks, reset, evidence); by digest in production."""
    job_account: str = "sickbay-node-job"
    """Service account of our Jobs on nodes. It has no rights."""
    machines: str = "auto"
    """Who reboots and replaces: auto (by the node's providerID and owners), ec2, node-job (reboot by a Job), none."""
    aws_region: str = ""
    """Region of the EC2 and Auto Scaling calls; empty: the node's own zone says."""
    aws_endpoint: str = ""
    """Another address for the AWS calls (a VPC endpoint, a test server); empty: the ordinary ones."""
    checkpoint: str = "annotation"
    """How a job is asked to save, unless its own label says: annotation, signal (USR1 by a Job on the node) or hook."""
    progress_root: str = ""
    """Folder of the controller under which jobs may name files with their steps (sickbay.dev/progress: file:<path>): a
    shared file system, mounted to be read only. Empty: no file is read."""
    sweep_at_once: int = 10
    """Idle nodes that `sickbay sweep` examines at the same time."""
    sweep_max: int = 10
    """Nodes in one sweep (the original's MAX_NODES_PER_SWEEP)."""
    quarantine_act: bool = False
    """May `sickbay quarantine` open a case by itself when its checks fail? Off: it recommends, a person acts."""
    lease_s: float = 15.0
    """Seconds after which a leader that does not renew is replaced."""


@dataclass(frozen=True, slots=True)
class EvidenceSettings:
    """Where the archives go that are collected on a node before it is treated."""

    store: str = "folder"
    """folder, s3, or none: then what was collected stays on the node, and is gone with it."""
    folder: str = ""
    """Folder of the archives; empty: `evidence` in data_dir. On Kubernetes a volume of the controller."""
    claim: str = ""
    """Name of the PersistentVolumeClaim that is mounted at folder; the chart writes it down (its value evidence.claim).
    Empty on Kubernetes: a volume of the controller's pod, which a rollout of the controller loses."""
    bucket: str = ""
    """Bucket of the archives, where store is s3."""
    prefix: str = "sickbay"
    """What the names of objects in the bucket begin with. Objects under it that are past their time are removed."""
    region: str = ""
    """Region of the bucket; empty: as the environment of the process says."""
    endpoint: str = ""
    """Another address for the S3 calls (a VPC endpoint, another maker's store); empty: the ordinary one."""
    archive_mb: float = 6.0
    """MB of one archive; a larger one is cut on the node, the longest reports first. 6 on Kubernetes because it travels
    as a pod's log, a third larger, and kubelets turn logs over at 10."""
    total_mb: float = 512.0
    """MB of all archives together. When it is full and nothing is past its time, new ones are not kept, a notice says
    so, and treatments go on."""
    keep_days: float = 90.0
    """Days that an archive is kept: as long as a vendor's ticket takes, and some more."""


@dataclass(frozen=True, slots=True)
class NotifySettings:
    """Where notices go besides the log. Empty: nowhere."""

    webhook_url: str = ""
    """POST each notice as JSON to this address. Treated as a secret: `sickbay config show` hides all but its host."""
    sns_topic_arn: str = ""
    """Publish each notice to this Amazon SNS topic."""
    webhook_secret_file: str = ""
    """File with a secret; each webhook is signed with it (HMAC-SHA256 over time and body). Empty: not signed."""
    apprise_file: str = ""
    """File with one apprise address a line: chat, pager, mail. A file, since each holds a secret."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole file. Keys outside of any table come first."""

    cluster: str = "default"
    """This cluster's name. Every record carries it, and a store serves one cluster only."""
    data_dir: str = "~/.local/share/sickbay"
    """Folder for the store, the leader's lock and evidence archives. `~` is the home of whoever runs Sickbay."""
    store: str = "sqlite"
    """Where records live. sqlite by default: one file, nothing to install; memory forgets everything on exit."""
    platform: str = "simulated"
    """Where the nodes live. The embedded simulated fleet by default: it can hurt nobody."""
    policy: Policy = Policy()
    """What we may do to nodes, for every pool that has no table of its own."""
    pools: Mapping[str, Policy] = field(default_factory=dict)
    """[pool.NAME.policy]: the same keys for one pool; what is left out is taken from [policy]."""
    jobs: JobPolicy = JobPolicy()
    """How hurt jobs are brought back."""
    controller: ControllerSettings = ControllerSettings()
    """The central loop."""
    ceilings: Mapping[str, frozenset[Verb]] = field(default_factory=lambda: dict(CEILINGS))
    """source -> verbs it may cause. Sources left out keep their default; a source that is not known may cause
    nothing."""
    severity_overrides: Mapping[str, str] = field(default_factory=dict)
    """code -> severity, e.g. "xid.94" = "RESET"."""
    log_level: str = "INFO"
    """How much the log says. INFO by default: one line for each thing that happened to a case."""
    sqlite: SqliteSettings = SqliteSettings()
    """The embedded store's file."""
    agent: AgentSettings = AgentSettings()
    """The shell on each node."""
    ingest: IngestSettings = IngestSettings()
    """The controller's door for agents."""
    notify: NotifySettings = NotifySettings()
    """Where notices go besides the log."""
    evidence: EvidenceSettings = EvidenceSettings()
    """Where collected archives go."""
    kubernetes: KubernetesSettings = KubernetesSettings()
    """The platform Kubernetes."""

    def policy_for(self, pool: str) -> Policy:
        return self.pools.get(pool, self.policy)
