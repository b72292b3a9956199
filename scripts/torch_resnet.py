"""torchvision's ResNets with any width, CIFAR's stem and another activation, for comparisons by scripts and benchmarks.
Needs the packages torch and torchvision."""
from torch import nn
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet

BLOCKS = {"resnet18": (BasicBlock, [2, 2, 2, 2]), "resnet50": (Bottleneck, [3, 4, 6, 3])}


class NarrowResNet(ResNet):
    """`width` channels in the first stage; `activation` relu or silu; `stem` imagenet or cifar. Initial values are those
    of the layers, not torchvision's: call initialize() for these."""

    def __init__(self, kind, width, classes, stem="imagenet", activation="relu"):
        nn.Module.__init__(self)
        block, repeats = BLOCKS[kind]
        self._norm_layer, self.inplanes, self.dilation, self.groups, self.base_width = nn.BatchNorm2d, width, 1, 1, 64
        cifar = stem == "cifar"
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False) if cifar else nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1, self.relu = nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        self.maxpool = nn.Identity() if cifar else nn.MaxPool2d(3, 2, 1)
        for i, count in enumerate(repeats):
            setattr(self, f"layer{i + 1}", self._make_layer(block, width << i, count, stride=1 if i == 0 else 2))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear((width << 3) * block.expansion, classes)
        if activation == "silu":
            for module in list(self.modules()):
                if hasattr(module, "relu"):
                    module.relu = nn.SiLU()

    def initialize(self):
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        return self
