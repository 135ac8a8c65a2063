"""What the chart renders: manifests that Kubernetes takes, configurations that federator takes."""

import re
import tomllib

import kubernetes_validate
import pytest

from tests.helm.chart import ALL_ON, CHART, KUBERNETES, helm, of_kind, render, workloads
from tests.helm.office import certificates, made_by_hand
from tests.helm.pods import Cluster

THREE = [{"id": number, "name": f"hall-{number}"} for number in (1, 2, 3)]
CASES = {
    "default": {},
    "everything": ALL_ON
    | {
        "networkPolicy": {
            "enabled": True,
            "clients": [{"podSelector": {}}],
            "monitoring": [{"namespaceSelector": {"matchLabels": {"team": "watch"}}}],
        },
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "clients": {"anonymous": True, "acl": "pattern readwrite plant/#\n"},
        "console": {"enabled": True, "names": ["map.example.org"], "operatorsSecret": "operators"},
        "imagePullSecrets": [{"name": "registry"}],
        "podAnnotations": {"a": "b"},
        "podLabels": {"c": "d"},
        "tolerations": [{"key": "edge", "operator": "Exists"}],
    },
    "tls": ALL_ON | {"tls": {"secret": "certificates"}, "security": "sealed"},
    "open": ALL_ON | {"security": "open", "storage": {"enabled": False}},
    "auto": {"links": "auto"},
    "named": {
        "links": "named",
        "brokers": [
            {"id": 7, "name": "edge", "neighbours": ["core", "mqtt://elsewhere.example.org"]},
            {
                **{"id": 4_294_967_295, "name": "core", "priority": -3, "storage": "8Gi"},
                "nodeSelector": {"zone": "a"},
                "config": {"custody": {"keep_s": 3600}, "share": {"bytes_max": 268435456}},
            },
        ],
        "agent": {
            "config": {
                "links": {"outboxes": [70, 71], "dial_back": False},
                "routing": {"filters": [{"filter": "alarms/#", "strategy": "shortest-path"}]},
            }
        },
    },
}  # fmt: skip
NOT_OF_KUBERNETES = {"ServiceMonitor"}
"""The Prometheus operator's own; the packaged schemas do not have it."""


@pytest.fixture(params=CASES)
def values(request):
    return CASES[request.param]


def secrets(folder, values):
    """All Secrets that people make for some of these cases."""
    return made_by_hand(folder, values) | {
        "certificates": certificates(folder),
        "operators": {"operators": b""},
    }


def test_lint_finds_nothing():
    done = helm("lint", "--strict", "--kube-version", KUBERNETES, str(CHART))

    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize("version", ["1.25", kubernetes_validate.latest_version()])
def test_every_manifest_is_one_of_kubernetes(values, version):
    for manifest in render(values):
        if manifest["kind"] not in NOT_OF_KUBERNETES:
            kubernetes_validate.validate(manifest, version, strict=True)


def test_nobody_is_root_or_writes_where_it_should_not(values):
    for workload in workloads(render(values)):
        pod = workload["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        for container in (*pod.get("initContainers", []), *pod["containers"]):
            assert container["securityContext"].get("runAsUser", 1) > 0
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]


def test_services_and_budgets_select_pods_that_are_there(values):
    manifests = render(values)
    pods = [each["spec"]["template"] for each in workloads(manifests)]

    def selected(selector):
        return [p for p in pods if selector.items() <= p["metadata"]["labels"].items()]

    for name, service in of_kind(manifests, "Service").items():
        found = selected(service["spec"]["selector"])
        assert found, name
        wanted = {port["targetPort"] for port in service["spec"]["ports"]}
        for pod in found:
            there = {port["name"] for c in pod["spec"]["containers"] for port in c["ports"]}
            assert wanted <= there, name
    for name, budget in of_kind(manifests, "PodDisruptionBudget").items():
        assert selected(budget["spec"]["selector"]["matchLabels"]), name
    for name, policy in of_kind(manifests, "NetworkPolicy").items():
        assert selected(policy["spec"]["podSelector"]["matchLabels"]), name


@pytest.mark.parametrize("case", sorted(CASES))
def test_federator_takes_every_configuration_with_the_files_that_are_mounted(case, tmp_path):
    cluster = Cluster(tmp_path / "pods", render(CASES[case]), secrets(tmp_path, CASES[case]))

    for pod in cluster.pods:
        pod.lay_out()
        done = pod.check()
        assert done.returncode == 0, f"{pod.name}: {done.stderr}"


def neighbours(values):
    maps = of_kind(render(values), "ConfigMap")
    found = {
        name.removeprefix("fed-federator-"): tomllib.loads(each["data"]["federator.toml"])
        for name, each in maps.items()
        if "federator.toml" in each["data"]
    }
    return {name: {n["id"] for n in config.get("neighbours", [])} for name, config in found.items()}


@pytest.mark.parametrize(
    ("links", "count", "wanted"),
    [
        ("ring", 1, {"hall-1": set()}),
        ("ring", 2, {"hall-1": {2}, "hall-2": {1}}),
        ("ring", 3, {"hall-1": {2, 3}, "hall-2": {1, 3}, "hall-3": {1, 2}}),
        ("line", 3, {"hall-1": {2}, "hall-2": {1, 3}, "hall-3": {2}}),
        ("full", 3, {"hall-1": {2, 3}, "hall-2": {1, 3}, "hall-3": {1, 2}}),
        ("auto", 2, {"hall-1": set(), "hall-2": set()}),
    ],
)
def test_links_are_those_of_the_shape(links, count, wanted):
    assert neighbours({"links": links, "brokers": THREE[:count]}) == wanted


def test_what_values_say_of_the_agent_wins_and_one_brokers_over_all():
    values = {
        "agent": {"config": {"custody": {"keep_s": 60}, "data": {"hop_limit": 9}}},
        "brokers": [THREE[0], {**THREE[1], "config": {"custody": {"keep_s": 70}}}],
    }
    maps = of_kind(render(values), "ConfigMap")
    one, two = (
        tomllib.loads(maps[f"fed-federator-hall-{n}"]["data"]["federator.toml"]) for n in (1, 2)
    )

    assert (one["custody"], two["custody"]) == ({"keep_s": 60}, {"keep_s": 70})
    assert one["data"] == two["data"] == {"hop_limit": 9}


def test_no_container_is_given_a_key_or_password_of_another():
    manifests = render(ALL_ON)
    for name, broker in of_kind(manifests, "StatefulSet").items():
        mine = name[-1]
        volumes = {each["name"]: each for each in broker["spec"]["template"]["spec"]["volumes"]}
        keys = {
            item["key"]
            for source in volumes["keys"]["projected"]["sources"]
            for item in source["secret"]["items"]
        }
        logins = {item["key"] for item in volumes["logins"]["secret"]["items"]}

        assert keys == {f"agent-{mine}.key", "federation.pub", "revocations"}
        assert logins == {f"agent-{mine}", "peer"}


def test_mosquitto_passwd_has_a_place_for_its_temporary_file():
    for broker in of_kind(render({}), "StatefulSet").values():
        (passwords,) = (
            each
            for each in broker["spec"]["template"]["spec"]["initContainers"]
            if "mosquitto_passwd" in each["args"][0]
        )
        assert "/tmp" in {mount["mountPath"] for mount in passwords["volumeMounts"]}


def test_the_page_names_objects_that_the_chart_makes():
    page = (CHART.parents[2] / "docs" / "how-to" / "kubernetes.md").read_text()
    manifests = render(ALL_ON)
    made = {each["metadata"]["name"] for each in manifests}
    pods = {f"{name}-0" for name in of_kind(manifests, "StatefulSet")}
    made |= pods | {f"data-{pod}" for pod in pods} | {"fed-federator-keys"}

    named = set(re.findall(r"(?:data-)?fed-federator-[a-z0-9-]+", page))

    assert named - made == set()


def test_passwords_are_drawn_for_all_who_need_one_and_none_is_like_another():
    (logins,) = of_kind(render(ALL_ON), "Secret").values()

    names = {"peer", "gateway", "collector", "console", "client-client"}
    assert set(logins["data"]) == names | {f"agent-{number}" for number in (1, 2, 3)}
    assert len(set(logins["data"].values())) == len(logins["data"])
    assert of_kind(render({"logins": {"secret": "mine"}}), "Secret") == {}
