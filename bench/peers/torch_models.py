"""The models of the comparison, in PyTorch as its users write them, with ringo's shapes.

Parameter counts are ringo's: 431,080 (mnist), 269,722 (resnet20), 14,728,266 (vgg16),
23,712,932 (resnet50 with 100 classes).
"""
import torch
from torch import nn
import torch.nn.functional as F


class MnistCNN(nn.Module):
    """20 and 50 filters of 5x5, each followed by a 2x2 max-pool and ReLU; 500 and 10 units."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 20, 5), nn.Conv2d(20, 50, 5)
        self.fc1, self.fc2 = nn.Linear(800, 500), nn.Linear(500, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))  # ReLU after the pool: the same at a quarter of the work
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions; the identity shortcut drops pixels and pads channels with zeros."""

    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(cout)
        self.stride, self.pad = stride, (cout - cin) // 2

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y))
        if self.pad:
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.pad, self.pad))
        return F.relu(y + x, inplace=True)


class ResNet20(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        blocks, cin = [], 16
        for cout, stride in ((16, 1), (32, 2), (64, 2)):
            for i in range(3):
                blocks.append(BasicBlock(cin, cout, stride if i == 0 else 1))
                cin = cout
        self.blocks, self.fc = nn.Sequential(*blocks), nn.Linear(64, classes)

    def forward(self, x):
        x = self.blocks(F.relu(self.norm(self.conv(x)), inplace=True))
        return self.fc(x.mean((2, 3)))


def vgg16(classes=10):
    """VGG16 for 32x32 images, with batch norm and a single dense layer."""
    layers, cin = [], 3
    for c in (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0):
        if c == 0:
            layers.append(nn.MaxPool2d(2))
            continue
        layers += [nn.Conv2d(cin, c, 3, padding=1), nn.BatchNorm2d(c), nn.ReLU(inplace=True)]
        cin = c
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, classes))


class LSTMModel(nn.Module):
    """A word language model: embedding, layers of LSTM, dense. x is [steps, n] ids."""

    def __init__(self, vocabulary=10000, width=650, layers=2, dropout=0.0):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, layers, dropout=dropout)
        self.drop = nn.Dropout(dropout)
        self.out = nn.Linear(width, vocabulary)

    def forward(self, x, state=None):
        y, state = self.lstm(self.drop(self.embedding(x)), state)
        return self.out(self.drop(y)).flatten(0, 1), state


class CTRDNN(nn.Module):
    """26 categorical slots embedded in one table, 13 numbers, dense layers with ReLU, two classes."""

    def __init__(self, widths=(400, 400, 400), rows=1000001, dim=10):
        super().__init__()
        self.embedding = nn.Embedding(rows, dim, sparse=True)
        layers, cin = [], 26 * dim + 13
        for width in widths:
            layers += [nn.Linear(cin, width), nn.ReLU(inplace=True)]
            cin = width
        self.dense = nn.Sequential(*layers, nn.Linear(cin, 2))

    def forward(self, ids, numbers):
        return self.dense(torch.cat([self.embedding(ids).flatten(1), numbers], 1))


class GPTMini(nn.Module):
    """Blocks of attention and a feed-forward layer, each after a layer norm and added; the output has the embedding's weights."""

    def __init__(self, vocabulary=256, context=64, layers=4, width=128, heads=4):
        super().__init__()
        self.heads = heads
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(nn.ModuleDict({
            "norm1": nn.LayerNorm(width), "qkv": nn.Linear(width, 3 * width), "mix": nn.Linear(width, width),
            "norm2": nn.LayerNorm(width), "expand": nn.Linear(width, 4 * width), "contract": nn.Linear(4 * width, width),
        }) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        n, steps = ids.shape
        x = self.tokens(ids) + self.places(torch.arange(steps))
        for b in self.blocks:
            qkv = b["qkv"](b["norm1"](x)).view(n, steps, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(*qkv, is_causal=True)
            x = x + b["mix"](y.transpose(1, 2).flatten(2))
            x = x + b["contract"](F.gelu(b["expand"](b["norm2"](x)), approximate="tanh"))
        return F.linear(self.norm(x), self.tokens.weight).flatten(0, 1)


def build(name, batch):
    """The model, its inputs (a tuple) and its labels."""
    if name == "mnist":
        return MnistCNN(), (torch.randn(batch, 1, 28, 28),), torch.randint(0, 10, (batch,))
    if name == "resnet20":
        return ResNet20(), (torch.randn(batch, 3, 32, 32),), torch.randint(0, 10, (batch,))
    if name == "vgg16":
        return vgg16(), (torch.randn(batch, 3, 32, 32),), torch.randint(0, 10, (batch,))
    if name == "resnet50":
        import torchvision

        model = torchvision.models.resnet50(num_classes=100)
        return model, (torch.randn(batch, 3, 224, 224),), torch.randint(0, 100, (batch,))
    if name == "lstm":
        return LSTMModel(), (torch.randint(0, 10000, (35, batch)),), torch.randint(0, 10000, (35 * batch,))
    if name in ("ctr400", "ctr4096"):
        model = CTRDNN() if name == "ctr400" else CTRDNN((4096, 2048, 1024))
        return model, (torch.randint(0, 1000001, (batch, 26)), torch.rand(batch, 13)), torch.randint(0, 2, (batch,))
    if name == "gpt-mini":
        return GPTMini(), (torch.randint(0, 256, (batch, 64)),), torch.randint(0, 256, (batch * 64,))
    raise SystemExit(f"unknown model {name!r}: know {', '.join(MODELS)}")


MODELS = ("mnist", "resnet20", "vgg16", "resnet50", "lstm", "ctr400", "ctr4096", "gpt-mini")
