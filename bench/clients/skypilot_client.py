"""SkyPilot's optimizer over catalogue files on this disk. No cloud is asked: see `quiet`."""

import math
import os

os.environ["SKYPILOT_DISABLE_USAGE_COLLECTION"] = "1"

import sky
from answering import cpu, serve
from sky import catalog, check, clouds, optimizer
from sky.catalog.common import read_catalog
from sky.utils import registry

CLOUDS = ("aws", "gcp", "azure", "lambda")


def quiet():
    """There are no accounts here: its clouds count as enabled, quota as granted, and nothing as reserved."""
    enabled = [registry.CLOUD_REGISTRY.from_str(name) for name in CLOUDS]
    check.get_cached_enabled_clouds_or_refresh = lambda *_, **__: enabled
    for cloud in (clouds.AWS, clouds.GCP, clouds.Azure, clouds.Lambda):
        cloud.get_reservations_available_resources = lambda *_, **__: {}
        cloud.check_quota_available = classmethod(lambda *_, **__: True)
    clouds.GCP._list_reservations_for_instance_type = lambda *_, **__: []


def offers():
    """What it sells with GPUs: cloud, region, zone, instance type, GPU, count, vCPUs, memory, on-demand and spot price."""
    found = []
    infos = catalog.list_accelerators(gpus_only=True, clouds=list(CLOUDS), all_regions=True)
    zones = {name: _zones(name) for name in ("aws", "gcp")}
    for gpu, sold in infos.items():
        for info in sold:
            cloud = info.cloud.lower()
            count = int(info.accelerator_count)
            where = [(info.region, info.price, info.spot_price)]
            if cloud in zones:
                where = zones[cloud].get(
                    (info.instance_type if cloud == "aws" else (gpu, count), info.region), []
                )
            if cloud == "gcp":  # its zones cost the same; the host is a row of its own, and counted in here
                where = [(zone, info.price, info.spot_price) for zone, _, _ in where]
            found += [
                [
                    cloud,
                    info.region,
                    zone,
                    info.instance_type,
                    gpu,
                    count,
                    info.cpu_count,
                    info.memory,
                    _usd(price),
                    _usd(spot),
                ]
                for zone, price, spot in where
            ]
    return found


def _zones(cloud):
    zones = {}
    for row in read_catalog(f"{cloud}/vms.csv")._load_df().itertuples():
        if isinstance(row.AcceleratorName, str):
            what = row.InstanceType if cloud == "aws" else (row.AcceleratorName, int(row.AcceleratorCount))
            zones.setdefault((what, row.Region), []).append((row.AvailabilityZone, row.Price, row.SpotPrice))
    return zones


def _usd(price):
    return None if price is None or math.isnan(price) else float(price)


def optimize(tasks):
    """The cheapest place for each task; CPU seconds of all together."""
    dags = []
    for text in tasks:
        dag = sky.Dag()
        dag.add(sky.Task.from_yaml_str(text))
        dags.append(dag)
    seconds, _ = cpu(lambda: [optimizer.Optimizer.optimize(dag, quiet=True) for dag in dags])
    chosen = [dag.tasks[0].best_resources for dag in dags]
    return {
        "cpu_s": seconds,
        "chosen": [
            [str(one.cloud).lower(), one.instance_type, one.region, one.get_cost(3600)] for one in chosen
        ],
    }


quiet()
serve({"offers": offers, "optimize": optimize})
