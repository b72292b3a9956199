"""Tables as people have them, from the file to a trained and evaluated model."""
import json
import random
import struct

import support
from support import DATA, USAGE, steps

PASSENGERS = "PassengerId,Survived,Pclass,Name,Sex,Age,Ticket,Fare,Cabin,Embarked\n"


def passengers(count, seed=3):
    """Rows as in Kaggle's Titanic: names in quotes, empty ages and cabins, an id, texts that are nearly all different."""
    draw = random.Random(seed)
    for i in range(count):
        sex, port, rank = draw.choice(("male", "female")), draw.choice("SSCQ"), draw.randint(1, 3)
        survived = int(draw.random() < (0.9 if sex == "female" else 0.1))
        yield {"PassengerId": i + 1, "Survived": survived, "Pclass": rank, "Name": f'"Last{i}, Mr. First ""F"""', "Sex": sex,
               "Age": "" if draw.random() < 0.2 else draw.randint(1, 80), "Ticket": f"A/{draw.randint(1, count)}",
               "Fare": round(draw.uniform(5, 500), 2), "Cabin": f"C{draw.randint(1, 90)}" if draw.random() < 0.3 else "", "Embarked": port}


def csv_text(rows, columns, separator=","):
    return "".join(separator.join(str(row[column]) for column in columns) + "\n" for row in rows)


class Tables(support.DltrainTest):
    COLUMNS = PASSENGERS.strip().split(",")

    def table(self, name, text, keys="", model="[linear: 16, relu, linear: auto]", loss="cross_entropy", extra=""):
        path = self.write(f"{name}.csv", text)
        return self.write(f"{name}.yaml", f"""
name: {name}
model: {{layers: {model}}}
loss: {{type: {loss}}}
data: {{type: csv, path: {path}{keys}}}
optimizer: {{type: adamw, learning_rate: 0.01}}
training: {{global_batch_size: 16, max_steps: 60}}
logging: {{logging_steps: 1}}
{extra}""")

    def evaluate(self, run, *arguments):
        self.run_dltrain("eval", "--checkpoint", run, "--result", self.folder / "eval.json", *arguments)
        return json.loads((self.folder / "eval.json").read_text())

    def test_a_table_from_kaggle_needs_two_commands(self):
        rows = list(passengers(300))
        path = self.write("titanic.csv", PASSENGERS + csv_text(rows, self.COLUMNS))
        config, run = self.folder / "titanic.yaml", self.folder / "run"
        told = self.run_dltrain("init", "mlp", "--data", path, "--target", "Survived", "-o", config).out
        self.assertIn(f"titanic.yaml: the template mlp for {path}, target 'Survived'\n", told)
        for column in ("Ticket", "Cabin", "Name", "PassengerId"):
            self.assertIn(f"  left out: column '{column}' ", told)
        text = config.read_text()
        for column in ("Ticket", "Cabin"):
            self.assertRegex(text, rf"- {column} +# column '{column}' has \d+ different texts")
        self.assertIn("empty: category", text)
        said = self.run_dltrain(config, "--output-dir", run, "--max-steps", 200)
        self.assertIn("column 'Name' has a different text in every row", said.out + said.err)
        self.assertIn("column 'PassengerId' numbers the rows", said.out + said.err)
        self.assertGreater(json.loads((run / "summary.json").read_text())["eval_accuracy"], 0.75)
        # The columns of a new file stand in any order; what is left out may be missing.
        before = self.evaluate(run)
        columns = [c for c in reversed(self.COLUMNS) if c not in ("Name", "Cabin")]
        new = self.write("new.csv", ",".join(columns) + "\n" + csv_text(rows, columns))
        self.run_dltrain("predict", "--checkpoint", run, "--split", "train", "-o", self.folder / "a.csv", "-s", f"data.train.path={path}")
        self.run_dltrain("predict", "--checkpoint", run, "--split", "train", "-o", self.folder / "b.csv", "-s", f"data.train.path={new}")
        strip = lambda name: [line.split(",")[2:] for line in (self.folder / name).read_text().splitlines()]
        self.assertEqual(strip("a.csv"), strip("b.csv"))
        self.assertGreater(before["eval_accuracy"], 0.75)

    def test_what_may_be_no_number_is_warned_of(self):
        rows = [(f"{i + 1}", f"{1067 + 3 * i:05d}", f"{12 + i}.{345 + i}", "no" if i < 20 else "yes") for i in range(40)]
        path = self.write("rows.csv", "lfd. Nr.;PLZ;Preis;y\n" + "".join(";".join(row) + "\n" for row in rows))
        config = self.folder / "rows.yaml"
        told = self.run_dltrain("init", "mlp", "--data", path, "--target", "y", "-o", config)
        self.assertIn("left out: column 'lfd. Nr.' counts the rows", told.out)
        self.assertIn("- \"lfd. Nr.\" ", config.read_text())
        said = self.run_dltrain("data", "inspect", config, "-s", "data.ignore=[]")
        for warning in ("column 'lfd. Nr.' counts the rows, so it may tell the target of sorted rows: set `ignore`",
                        "column 'PLZ' has codes such as '01067' and is read as numbers: set `categories`",
                        "column 'Preis': '12.345' is read with '.' as the decimal mark, but before three digits in every cell"):
            self.assertIn(warning, said.err)
        quiet = self.run_dltrain("data", "inspect", config, "-s", "data.ignore=[]", "-s", "data.columns=[lfd. Nr., PLZ]")
        self.assertNotIn("warning", quiet.err)

    def test_columns_are_matched_by_name_and_none_may_be_missing(self):
        draw = random.Random(1)
        rows = [{"a": draw.random(), "b": 10 + draw.random(), "c": -5 + draw.random()} for _ in range(80)]
        for row in rows:
            row["y"] = ["low", "high"][row["a"] > 0.5]
        config = self.table("train", "a,b,c,y\n" + csv_text(rows, "abcy"), ", normalize: auto, target: y, eval: {}")
        run = self.folder / "run"
        self.run_dltrain(config, "-q", "--output-dir", run)
        expected = self.evaluate(run)
        permuted = self.write("permuted.csv", "y,c,a,b\n" + csv_text(rows, "ycab"))
        found = self.evaluate(run, "-s", f"data.eval.path={permuted}")
        self.assertEqual(found["eval_loss"], expected["eval_loss"])
        self.assertGreater(found["eval_accuracy"], 0.9)
        lacking = self.write("lacking.csv", "y,c,a,bb\n" + csv_text(rows, "ycab"))
        self.refused(DATA, "eval", "--checkpoint", run, "-s", f"data.eval.path={lacking}",
                     says=["lacking.csv:1", "no column 'b'", "is it 'bb'?", "without the column 'bb'"])
        self.refused(DATA, "predict", run, self.write("gap.csv", "a,b,c,y\n1,,x,low\n"), "-o", self.folder / "no.csv",
                     says="(column 2, 'b'): a missing value (fill such cells, or train with `data.empty`)")
        # The schema is in the checkpoint, readable.
        state = json.loads((run / "checkpoints" / "latest" / "state.json").read_text())
        self.assertEqual(state["class_names"], ["high", "low"])
        self.assertEqual([column["name"] for column in state["data"]["columns"]], list("abcy"))
        self.assertAlmostEqual(state["data"]["columns"][1]["mean"], sum(row["b"] for row in rows) / 80, places=4)
        # A run goes on with the data that it has begun with.
        self.run_dltrain(config, "-q", "--output-dir", run, "--resume", "auto", "--max-steps", 70)
        self.refused(USAGE, config, "--output-dir", run, "--resume", "auto", "--max-steps", 80, "-s", f"data.path={permuted}",
                     says=["the columns are in another order: column 1 is 'a' in the checkpoint and 'y' in this data", "even with --allow-changes"])
        self.write("train.csv", "a,b,c,y\n" + csv_text([{**row, "b": 1000 * row["b"]} for row in rows], "abcy"))
        self.refused(USAGE, config, "--output-dir", run, "--resume", "auto", "--max-steps", 80, says=["column 'b' has mean", "hash of some inputs"])
        other = (config, "--output-dir", run, "--resume", "auto", "--max-steps", 80)
        self.refused(USAGE, *other, "-s", "training.global_batch_size=10", says=["column 'b' has mean", "training.global_batch_size: ", "--allow-changes"])
        # With the flag it goes on, as later commands do, and the inputs keep the statistics of the checkpoint.
        self.assertIn("the inputs are normalized with the statistics of the checkpoint", self.run_dltrain(*other, "--allow-changes").err)
        self.run_dltrain(*other, "--max-steps", 90, "-q")
        saved = json.loads((run / "checkpoints" / "latest" / "state.json").read_text())
        self.assertEqual(saved["data"], state["data"])

    def test_answers_stay_answers_where_a_run_goes_on_with_its_statistics(self):
        draw = random.Random(4)
        rows = [{"a": draw.uniform(-1, 1), "b": draw.random()} for _ in range(100)]
        for row in rows:
            row["y"] = ["no", "yes"][row["a"] > 0]
        config = self.table("answers", "a,b,y\n" + csv_text(rows, "aby"), ", normalize: auto, target: y, eval: {}", loss="binary_cross_entropy")
        run = self.folder / "run"
        self.run_dltrain(config, "-q", "--output-dir", run)
        changed = [{**row, "b": row["b"] + (i % 10 == 0)} for i, row in enumerate(rows)]
        self.write("answers.csv", "a,b,y\n" + csv_text(changed, "aby"))
        more = (config, "-q", "--output-dir", run, "--resume", "auto", "--max-steps", 150)
        said = self.refused(USAGE, *more, says=["column 'b' has mean", "hash of some inputs"]).err
        self.assertNotIn("hash of some targets", said)
        self.run_dltrain(*more, "--allow-changes")
        self.assertGreater(self.evaluate(run)["eval_accuracy"], 0.9)

    def test_trained_weights_are_not_used_for_other_columns_or_classes_in_silence(self):
        draw = random.Random(3)
        rows = [{"a": draw.random(), "b": 5 + draw.random(), "y": draw.choice(["low", "high"])} for _ in range(40)]
        config = self.table("first", "a,b,y\n" + csv_text(rows, "aby"), ", target: y, normalize: auto")
        run = self.folder / "run"
        self.run_dltrain(config, "-q", "--output-dir", run, "--max-steps", 2)
        tables = {"same": (rows, "aby"), "shifted": ([{**row, "a": row["a"] + 1} for row in rows], "aby"), "permuted": (rows, "bay"),
                  "renamed": ([{**row, "y": {"low": "a", "high": "z"}[row["y"]]} for row in rows], "aby")}
        for name, (changed, columns) in tables.items():
            table = self.table(name, ",".join(columns) + "\n" + csv_text(changed, columns), ", target: y, normalize: auto")
            other = self.folder / name
            said = self.run_dltrain(table, "--output-dir", other, "--max-steps", 3, "-s", f"model.init_from={run}").err
            fits = name in ("same", "shifted")
            self.assertEqual("were trained with other data: " in said, not fits, said)
            distil = (table, "--output-dir", self.folder / f"{name}-student", "--max-steps", 2,
                      "-s", f"loss={{type: distillation, teacher: {run}, temperature: 2, alpha: 0.5}}")
            average = ("average", run, other, "-o", self.folder / f"{name}-average")
            if fits:
                told = [self.run_dltrain(*command).err for command in (distil, average)]
                self.assertEqual(["normalized" in text for text in told], [name == "shifted"] * 2, told)
                # The average keeps the statistics of the first, also where another has more steps.
                kept, own = (json.loads((folder / "checkpoints" / "latest" / "state.json").read_text())["data"] for folder in (average[-1], run))
                self.assertEqual(kept, own)
            else:
                self.refused(USAGE, *distil, says=["the teacher ", "was trained with other data: "])
                self.refused(USAGE, *average, says="were trained with different data: ")

    def test_files_of_spreadsheets_are_read(self):
        lines = [f"{i},5;{i % 3};{'ja' if i % 2 else 'nein'}" for i in range(40)]
        text = "\ufeffGröße;Klasse;Ziel\r\n" + "\r\n".join(lines) + "\r\n \r\n\r\n"
        said = self.run_dltrain("data", "inspect", self.table("excel", text, ", categories: Klasse")).out
        self.assertRegex(said, r"Größe +number +mean 20 +std .* from 0.5 to 39.5")
        self.assertRegex(said, r"Klasse +category +3 categories: 0 14, 1 13, 2 13")
        self.assertRegex(said, r"nein\) +20")
        workbook = self.table("book", "PK\x03\x04 something")
        self.refused(DATA, workbook, "--output-dir", self.folder / "no", says="save the sheet as CSV")

    def test_new_rows_are_neither_dropped_nor_guessed(self):
        text = "age;city;sex\n" + "".join(f"{i};{'Köln' if i % 3 else 'Ulm'};{'mf'[i % 2]}\n" for i in range(40))
        run, out = self.folder / "run", self.folder / "out.csv"
        self.run_dltrain(self.table("people", text, ", target: sex, empty: mean"), "-q", "--output-dir", run, "--max-steps", 2)
        self.refused(DATA, "predict", run, self.write("twice.csv", "age;city;age\n1;Ulm;2\n"), "-o", out,
                     says=["twice.csv:1", "two columns are called 'age'"])
        # A row of separators has empty cells.
        self.run_dltrain("predict", run, self.write("new.csv", "age;city;sex\n1;Ulm;m\n;;\n\n3;Ulm;f\n"), "-o", out)
        self.assertEqual(len(out.read_text().splitlines()), 4)
        self.refused(DATA, "eval", run, self.folder / "new.csv", says=["new.csv:3", "all cells are empty; remove the line"])
        latin = self.folder / "latin.csv"
        latin.write_bytes(text.encode("latin-1"))
        for command in (("predict", run, latin, "-o", out), ("eval", run, latin), ("init", "mlp", "--data", latin, "--target", "sex", "-o", out)):
            self.refused(DATA, *command, says=["latin.csv:3 (column 2)", "save the file as UTF-8"])

    def test_a_target_with_one_class_is_named(self):
        config = self.table("one", "a,x\n" + "".join(f"{i},k\n" for i in range(20)))
        self.refused(DATA, config, "--output-dir", self.folder / "no", says="the target column 'x' has one class only ('k')")

    def test_two_answers_are_learned_with_binary_cross_entropy(self):
        draw = random.Random(2)
        numbers = [draw.uniform(-1, 1) for _ in range(100)]
        for name, answers in (("digits", ("0", "1")), ("words", ("no", "yes"))):
            text = "x,y\n" + "".join(f"{x},{answers[x > 0]}\n" for x in numbers)
            run = self.folder / f"run-{name}"
            self.run_dltrain(self.table(name, text, ", eval_fraction: 0.2", loss="binary_cross_entropy"), "-q", "--output-dir", run)
            self.assertGreater(json.loads((run / "summary.json").read_text())["eval_accuracy"], 0.9)
        three = self.table("three", "x,y\n" + "".join(f"{i},{i % 3}\n" for i in range(30)), loss="binary_cross_entropy")
        self.refused(DATA, three, "--output-dir", self.folder / "no", says="the data has 3 classes")

    def test_a_number_is_predicted_where_the_loss_wants_one(self):
        text = "x,price\n" + "".join(f"{i % 10},{100 + 7 * (i % 10)}\n" for i in range(60))
        config = self.table("prices", text, ", normalize: auto, eval_fraction: 0.2", loss="mse")
        run = self.folder / "run"
        self.run_dltrain(config, "-q", "--output-dir", run)
        resolved = (run / "config.yaml").read_text()
        self.assertIn("task: regression", resolved)
        self.assertIn("out_features: 1", resolved)

    def test_numbers_that_are_one_in_f32_are_told(self):
        times = [1_700_000_001 + i for i in range(60)]
        header = "{'descr': '<f8', 'fortran_order': False, 'shape': (60, 1), }".ljust(117) + "\n"
        array = self.write("times.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + header.encode() + struct.pack("<60d", *times))
        text = "x,t\n" + "".join(f"{time},{times[7 * i % 60]}\n" for i, time in enumerate(times))
        tables = {"csv": (self.table("times", text, ", eval_fraction: 0.2", loss="mse"), ["column 'x': ", "column 't': "])}
        tables["npy"] = (self.write("npy.yaml", tables["csv"][0].read_text().replace(
            f"type: csv, path: {self.folder}/times.csv", f"type: tensors, inputs: {array}, targets: {array}")), ["times.npy', column 0: "])
        for name, (config, columns) in tables.items():
            for command in (("data", "inspect", config), ("train", config, "--output-dir", self.folder / name)):
                said = self.run_dltrain(*command).err
                for column in columns:
                    self.assertRegex(said, column + r"60 different values become 1 in f32, whose numbers near 1.7e\+09 are 128 apart; subtract a constant")
        accounts = self.table("accounts", "acct,y\n" + "".join(f"{4000000000000000 + 7 * i},{i % 2}\n" for i in range(120)))
        self.assertIn("column 'acct': 120 different values become 1 in f32", self.run_dltrain("data", "inspect", accounts).err)
        fixed = self.table("fixed", "x,t\n" + "".join(f"{i * 0.1},{i}\n" for i in range(60)), loss="mse")
        self.assertNotIn("in f32", self.run_dltrain("data", "inspect", fixed).err)

    def test_marks_that_may_separate_thousands_are_told_once(self):
        cells = [937 + i if i % 2 else f"{i}.811" for i in range(1, 61)]
        text = "a,b,y\n" + "".join(f"{cell},{i % 7}.250,{i % 3}\n" for i, cell in enumerate(cells))
        config, run, told = self.table("marked", text), self.folder / "run", "column 'a': '2.811' is read with '.' as the decimal mark"
        new = self.write("new.csv", text)
        for command in (("data", "inspect", config), (config, "--output-dir", run), ("predict", run, new, "-o", self.folder / "out.csv"),
                        ("init", "mlp", "--data", new, "-o", self.folder / "new.yaml")):
            said = self.run_dltrain(*command).err
            self.assertEqual((said.count(told), said.count("thousands")), (1, 1), said)
        # Fewer decimals, a mark in every number, and one value without it are no sign.
        for name, numbers in (("fewer", [*cells, "2.5"]), ("all", [f"{i}.811" for i in range(1, 61)]), ("one", [f"{i % 9 + 1}.811" if i % 2 else -999 for i in range(60)])):
            text = "a,y\n" + "".join(f"{number},{i % 3}\n" for i, number in enumerate(numbers))
            self.assertNotIn("thousands", self.run_dltrain("data", "inspect", self.table(name, text)).err)

    def test_a_column_that_is_the_target_is_named(self):
        text = "x,grade,y\n" + "".join(f"{i % 7},{'fail' if i % 3 else 'pass'},{'no' if i % 3 else 'yes'}\n" for i in range(60))
        self.assertRegex(self.run_dltrain("check", self.table("leak", text), code=9).out,
                         r"target leak: column 'grade', category '(fail|pass)' follows the target exactly")

    def test_balanced_sampling_is_for_binary_losses_too(self):
        text = "x,y\n" + "".join(f"{i % 9},{int(i % 10 == 0)}\n" for i in range(60))
        self.run_dltrain(self.table("rare", text, ", train: {sampling: balanced}", loss="binary_cross_entropy"), "--output-dir", self.folder / "run", "-q")

    def test_outputs_and_inputs_that_do_not_fit_the_data_are_told(self):
        text = "age,wage,y\n" + "".join(f"{20 + i % 40},{900 + 31 * (i % 50)},{i % 2}\n" for i in range(100))
        ten = self.run_dltrain(self.table("ten", text, model="[linear: 10]"), "--output-dir", self.folder / "ten")
        self.assertIn("the model has 10 outputs, the data 2 classes", ten.out + ten.err)
        self.assertRegex(ten.out + ten.err, r"the first loss is .* inputs reach 2\d+ \(column 'wage'\); `normalize: auto`")
        auto = self.run_dltrain(self.table("auto", text, ", normalize: auto"), "--output-dir", self.folder / "auto")
        self.assertNotIn("outputs, the data", auto.out + auto.err)
        self.assertNotIn("the first loss is", auto.out + auto.err)
        self.assertLess(steps(self.folder / "auto")[0]["loss"], 1.5)
        numbers = self.table("numbers", "wage,price\n" + "".join(f"{900 + 31 * (i % 50)},{i % 7}\n" for i in range(100)), loss="mse")
        said = self.run_dltrain(numbers, "--output-dir", self.folder / "numbers")
        self.assertRegex(said.out + said.err, r"the first loss is .*, where a guess has .*: inputs reach 2\d+ \(column 'wage'\); `normalize: auto`")
        self.assertRegex(self.run_dltrain("check", numbers, code=9).out, r"(?s)FAIL.*loss at init.*the best constant answer.*inputs reach 2\d+")
        self.assertIn("out_features: 2", (self.folder / "auto" / "config.yaml").read_text())

    def test_categories_are_embedded(self):
        draw = random.Random(4)
        rows = [(draw.choice("abcdef"), draw.choice("uvw"), draw.random()) for _ in range(200)]
        text = "k,l,x,y\n" + "".join(f"{k},{l},{x},{int(k in 'ace')}\n" for k, l, x in rows)
        model = "[{embedding: {embedding_dim: 4}, inputs: [categories]}, {type: flatten, name: e}, {concat: [input, e]}, linear: 16, relu, linear: auto]"
        config = self.table("embedded", text, ", encoding: ids, eval_fraction: 0.2", model=model)
        run = self.folder / "run"
        self.run_dltrain(config, "-q", "--output-dir", run)
        self.assertGreater(json.loads((run / "summary.json").read_text())["eval_accuracy"], 0.9)
        self.assertIn("vocab_size: 10", (run / "config.yaml").read_text())


if __name__ == "__main__":
    support.main()
