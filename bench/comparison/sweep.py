"""Task 14 of docs/comparison.md: eight learning rates, and which is best."""
import lightning as L
import optuna
from table import Mlp, Table


def objective(trial):
    L.seed_everything(0)
    trainer = L.Trainer(accelerator="cpu", max_epochs=66, check_val_every_n_epoch=6, gradient_clip_val=1.0, log_every_n_steps=10,
                        enable_progress_bar=False, enable_model_summary=False, default_root_dir=f"runs/sweep/{trial.number}")
    trainer.fit(Mlp(rate=trial.suggest_float("rate", 1e-4, 1e-1, log=True)), Table())
    return trainer.callback_metrics["val_loss"].item()


study = optuna.create_study(storage="sqlite:///sweep.db", study_name="rates", load_if_exists=True,
                            sampler=optuna.samplers.GridSampler({"rate": [1e-4 * 1000 ** (i / 7) for i in range(8)]}))
study.optimize(objective)
print(study.trials_dataframe().sort_values("value")[["number", "value", "params_rate"]])
