"""Task 20 of docs/comparison.md: a small convolutional network on a folder of images."""
import lightning as L
import torch
from lightning.pytorch.cli import LightningCLI
from torch.nn import BatchNorm2d, Conv2d, Flatten, LazyLinear, MaxPool2d, ReLU, Sequential
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import Compose, RandomCrop, RandomHorizontalFlip, Resize, ToTensor


class Photos(L.LightningDataModule):
    def __init__(self, path: str = "photos", batch_size: int = 16, workers: int = 0):
        super().__init__()
        self.save_hyperparameters()

    def train_dataloader(self):
        changes = Compose([Resize(40), RandomCrop(32), RandomHorizontalFlip(), ToTensor()])
        return DataLoader(ImageFolder(self.hparams.path, changes), self.hparams.batch_size, shuffle=True, num_workers=self.hparams.workers)


class Convnet(L.LightningModule):
    def __init__(self):
        super().__init__()
        layers = [part for channels in ((3, 32), (32, 64))
                  for part in (Conv2d(*channels, 3, padding=1, bias=False), BatchNorm2d(channels[1]), ReLU(), MaxPool2d(2))]
        self.net = Sequential(*layers, Flatten(), LazyLinear(2))
        self.net(torch.zeros(1, 3, 32, 32))

    def training_step(self, batch, _):
        return cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1, momentum=0.9, weight_decay=5e-4)


if __name__ == "__main__":
    LightningCLI(Convnet, Photos, seed_everything_default=0, trainer_defaults={"accelerator": "cpu", "max_steps": 23, "enable_progress_bar": False})
