"""The subset of Kubernetes objects that we read, as msgspec types: everything else is skipped while decoding.

Called with `Api.get(path, NodeObject)` and by the watches. Additive: a reader who needs a field adds it here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

# A time as text. A writer that leaves it out makes the API server send null: read as "", or one careless condition
# would make its whole node unreadable.
if TYPE_CHECKING:
    Moment = str
else:
    Moment = str | None


class Shape(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """camelCase on the wire. (gc=False: no cycles, and thousands of them must not be walked by the collector.)"""


class Owner(Shape):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    api_version: str = ""


class Meta(Shape):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    deletion_grace_period_seconds: int | None = None
    owner_references: list[Owner] | None = None
    generation: int = 0

    @property
    def version(self) -> int:
        return int(self.resource_version) if self.resource_version.isdigit() else 0

    def label(self, key: str, default: str = "") -> str:
        return (self.labels or {}).get(key, default)

    def annotation(self, key: str, default: str = "") -> str:
        return (self.annotations or {}).get(key, default)


class Anything(Shape):
    """When only the metadata matters."""

    metadata: Meta = msgspec.field(default_factory=Meta)


class Condition(Shape):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: Moment = ""
    last_heartbeat_time: Moment = ""

    def __post_init__(self) -> None:
        self.last_transition_time = self.last_transition_time or ""
        self.last_heartbeat_time = self.last_heartbeat_time or ""


class Taint(Shape):
    key: str = ""
    effect: str = ""
    value: str = ""
    time_added: str = ""


class NodeSpec(Shape):
    unschedulable: bool = False
    provider_id: str = msgspec.field(default="", name="providerID")
    taints: list[Taint] | None = None


class NodeSystem(Shape):
    boot_id: str = msgspec.field(default="", name="bootID")
    machine_id: str = msgspec.field(default="", name="machineID")
    system_uuid: str = msgspec.field(default="", name="systemUUID")
    kernel_version: str = ""
    os_image: str = ""


class NodeStatus(Shape):
    conditions: list[Condition] | None = None
    allocatable: dict[str, Any] | None = None
    capacity: dict[str, Any] | None = None
    node_info: NodeSystem | None = None


class NodeObject(Shape):
    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class Resources(Shape):
    limits: dict[str, Any] | None = None
    requests: dict[str, Any] | None = None


class Container(Shape):
    name: str = ""
    resources: Resources | None = None


class Named(Shape):
    name: str = ""


class EmptyDir(Shape):
    medium: str = ""


class Volume(Shape):
    name: str = ""
    empty_dir: EmptyDir | None = None


class PodSpec(Shape):
    node_name: str = ""
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    volumes: list[Volume] | None = None
    termination_grace_period_seconds: int | None = None
    priority_class_name: str = ""
    resource_claims: list[Named] | None = None


class Terminated(Shape):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    finished_at: Moment = ""

    def __post_init__(self) -> None:
        self.finished_at = self.finished_at or ""


class Waiting(Shape):
    reason: str = ""
    message: str = ""


class ContainerState(Shape):
    terminated: Terminated | None = None
    waiting: Waiting | None = None


class ContainerStatus(Shape):
    name: str = ""
    state: ContainerState | None = None
    last_state: ContainerState | None = None
    restart_count: int = 0


class PodStatus(Shape):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    start_time: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")


class PodObject(Shape):
    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class JobStatus(Shape):
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    ready: int = 0
    conditions: list[Condition] | None = None
    start_time: str = ""
    completion_time: str = ""


class JobObject(Shape):
    """batch/v1 Job; `spec` is left untyped, since we suspend, copy and resume it."""

    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: JobStatus = msgspec.field(default_factory=JobStatus)


class LeaseSpec(Shape):
    holder_identity: str = ""
    lease_duration_seconds: int = 15
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int = 0


class LeaseObject(Shape):
    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


class EventObject(Shape):
    metadata: Meta = msgspec.field(default_factory=Meta)
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int = 0
    last_timestamp: str | None = None
