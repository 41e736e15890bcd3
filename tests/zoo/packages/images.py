# SPDX-License-Identifier: Apache-2.0
"""Models of pictures: torchvision's, timm's, Ultralytics', segmentation_models_pytorch's."""

from __future__ import annotations

import importlib
import logging
from typing import Any

import torch

from jetdvfs.tests.zoo.table import Entry, Made


def picture(side: int, *lead: int) -> torch.Tensor:
    return torch.rand(*(lead or (1, 3)), side, side)


def torchvision(entry: Entry) -> Made:
    task, _, side = entry.group.partition("/")
    options: dict[str, Any] = {"weights": None}
    if entry.name in ("googlenet", "inception_v3"):
        options |= {"init_weights": False}
    if task == "segmentation":
        options |= {"weights_backbone": None}
    module = importlib.import_module("torchvision").models.get_model(_full_name(task, entry.name), **options)
    inputs = (picture(int(side), 1, 3, 8),) if task == "video" else (picture(int(side)),)
    return Made(module, inputs * 2 if task == "optical_flow" else inputs)


def _full_name(task: str, name: str) -> str:
    return {"classification": name, "segmentation": name, "video": name, "optical_flow": name}[task]


def timm(entry: Entry) -> Made:
    side = int(entry.group.rpartition(" ")[2])
    options = {"img_size": side} if entry.group.startswith("img_size") else {}
    make = importlib.import_module("timm").create_model
    module = make(entry.name, pretrained=False, **options)
    wanted = module.default_cfg.get("input_size", (3, side, side))
    return Made(module, (picture(side if side < 224 else wanted[-1]),))


def ultralytics(entry: Entry) -> Made:
    tasks = importlib.import_module("ultralytics.nn.tasks")
    logging.getLogger("ultralytics").setLevel(logging.ERROR)
    kind = entry.name.rpartition("-")[2]
    classes = {"seg": "SegmentationModel", "cls": "ClassificationModel", "pose": "PoseModel", "obb": "OBBModel"}
    classes |= {"rtdetr": "RTDETRDetectionModel"}
    module = getattr(tasks, classes.get(kind, "DetectionModel"))(f"{entry.name}.yaml", verbose=False)
    for child in module.modules():
        if hasattr(child, "export"):
            child.export, child.format = True, "onnx"  # as Ultralytics' own export sets it
    return Made(module, (picture(64),))


def segmentation_models_pytorch(entry: Entry) -> Made:
    package = importlib.import_module("segmentation_models_pytorch")
    options = {"dynamic_img_size": True} if entry.group.startswith("tu-") else {}
    module = getattr(package, entry.name)(entry.group, encoder_weights=None, **options)
    return Made(module, (picture(128 if entry.name == "PAN" else 64),))
