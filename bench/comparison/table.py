"""The tasks of docs/comparison.md on a table, with Lightning. `# Task N` begins the lines that task N adds."""
# Task 1
import lightning as L
import pandas
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.cli import LightningCLI
from sklearn.model_selection import train_test_split
from torch.nn import Dropout, Linear, ReLU, Sequential
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy, MulticlassConfusionMatrix


class Table(L.LightningDataModule):
    def __init__(self, path: str = "patients.csv", target: str = "diagnosis", batch_size: int = 32, new: str = "new.csv"):
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage=None):
        frame = pandas.read_csv(self.hparams.path)
        labels, self.classes = pandas.factorize(frame.pop(self.hparams.target), sort=True)
        train, held = train_test_split(range(len(frame)), test_size=0.2, stratify=labels, random_state=0)
        self.columns, self.mean, self.std = frame.columns, frame.iloc[train].mean(), frame.iloc[train].std()
        x, y = self.tensor(frame), torch.tensor(labels)
        self.train, self.held = TensorDataset(x[train], y[train]), TensorDataset(x[held], y[held])

    def tensor(self, frame):
        return torch.tensor(((frame - self.mean) / self.std).to_numpy("float32"))

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=self.hparams.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.held, batch_size=128)
    # Task 11
    test_dataloader = val_dataloader

    # Task 12
    def predict_dataloader(self):
        return DataLoader(TensorDataset(self.tensor(pandas.read_csv(self.hparams.new)[self.columns])), batch_size=128)


# Task 1
class Mlp(L.LightningModule):
    def __init__(self, inputs: int = 30, classes: int = 2, width: int = 128, rate: float = 1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = Sequential(Linear(inputs, width), ReLU(), Dropout(0.1), Linear(width, classes))
        self.accuracy = MulticlassAccuracy(classes, average="micro")
        # Task 11
        self.confusion = MulticlassConfusionMatrix(classes)

    # Task 1
    def training_step(self, batch, _):
        loss = cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, _):
        outputs = self.net(batch[0])
        self.accuracy(outputs, batch[1])
        self.log_dict({"val_loss": cross_entropy(outputs, batch[1]), "val_accuracy": self.accuracy}, prog_bar=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), self.hparams.rate, weight_decay=0.01)
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.trainer.estimated_stepping_batches)
        return [optimizer], [{"scheduler": cosine, "interval": "step"}]

    # Task 9: the same shuffle and dropout in an epoch that begins after a restart
    def on_train_epoch_start(self):
        torch.manual_seed(self.current_epoch)

    # Task 11
    def test_step(self, batch, _):
        self.validation_step(batch, _)
        self.confusion(self.net(batch[0]), batch[1])

    def on_test_epoch_end(self):
        print(self.trainer.datamodule.classes, self.confusion.compute(), sep="\n")

    # Task 12
    def predict_step(self, batch, _):
        return self.net(batch[0]).softmax(1)

    def on_predict_epoch_end(self):
        probability, label = torch.cat(self.trainer.predict_loop.predictions).max(1)
        pandas.DataFrame({"class": self.trainer.datamodule.classes[label.numpy()], "probability": probability}).to_csv("predictions.csv")


# Task 1
if __name__ == "__main__":
    defaults = {"max_epochs": 66, "check_val_every_n_epoch": 6, "accelerator": "cpu", "devices": 1, "gradient_clip_val": 1.0,
                "log_every_n_steps": 10, "enable_progress_bar": False, "callbacks": [ModelCheckpoint(save_last=True)]}
    LightningCLI(Mlp, Table, seed_everything_default=0, trainer_defaults=defaults)
