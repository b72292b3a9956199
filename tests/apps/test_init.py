"""dltrain init: every template trains as it is, once the files that it names are there."""
import json
import re

from support import SOURCES, USAGE, DltrainTest, main, metrics, png

TEMPLATES = {path.stem for path in (SOURCES / "configs" / "templates").glob("*.yaml")}


class Init(DltrainTest):
    def template(self, name):
        path = self.folder / f"{name}.yaml"
        self.run_dltrain("init", name, "-o", path)
        return path

    def train(self, name, *arguments):
        """Trains two steps in the folder of the template, like somebody who has just written it there."""
        config = self.template(name)
        self.run_dltrain("train", config.name, "--max-steps", 2, "-q", *arguments, cwd=self.folder)
        run = self.folder / "runs" / re.search(r"^name: (.*)$", config.read_text(), re.MULTILINE)[1]
        losses = [line["loss"] for line in metrics(run) if "loss" in line]
        self.assertTrue(losses)
        return run

    def images(self, folder, size):
        for kind in ("cat", "dog", "owl"):
            for i in range(12):
                shade = 60 * len(kind) + i
                self.write(f"{folder}/{kind}/{i}.png", png(size, size, lambda y, x: (shade % 256, x % 256, y % 256)))

    def words(self):
        return "".join(f"The {'quick brown fox' if i % 3 else 'lazy dog'} number {i} jumps over {i * i}.\n" for i in range(3000))

    def test_tables(self):
        self.write("data.csv", "a,b,kind\n" + "".join(f"{i % 7},{i % 5},{'xyz'[i % 3]}\n" for i in range(300)))
        self.train("mlp")
        self.write("data.csv", "a,b,y\n" + "".join(f"{i % 7},{i % 5},{3 * (i % 7) + 100}\n" for i in range(300)))
        run = self.train("regression")
        self.assertIn("eval_r2", json.loads((run / "summary.json").read_text()))

    def test_summaries_of_templates_are_whole_sentences(self):
        said = self.run_dltrain("init", "--help").out
        self.assertIn("for each class; model.type: resnet34 and resnet50 have the same keys\n", said)
        self.assertIn("mlp: a multi-layer perceptron on a table\n", said)

    def test_a_table_is_described_for_its_folder_and_its_dates(self):
        rows = "".join(f"2024-01-{1 + i % 28:02},{i % 7},{i % 7 + 0.5}\n" for i in range(60))
        self.write("below/t.csv", "day,a,y\n" + rows)
        self.run_dltrain("init", "--data", "below/t.csv", "-o", "below/t.yaml", cwd=self.folder)
        text = (self.folder / "below" / "t.yaml").read_text()
        for part in ("\n  path: t.csv\n", "    - day ", "# eval_split: tail "):
            self.assertIn(part, text)
        self.assertNotIn("of each class", text)
        self.run_dltrain("t.yaml", "--max-steps", 2, "-q", cwd=self.folder / "below")
        self.run_dltrain("init", "--data", "t.csv", "-o", "../t.yaml", cwd=self.folder / "below")
        self.assertIn("\n  path: below/t.csv\n", (self.folder / "t.yaml").read_text())
        self.assertIn("\n  path: below/t.csv\n", self.run_dltrain("init", "--data", "below/t.csv", cwd=self.folder).out)

    def test_rows_in_the_order_of_time_are_split_by_it_and_those_without_a_target_are_counted(self):
        rows = [f"2024-01-{1 + i // 3:02} 0{i % 3}:00,{i % 7},{'' if i in (4, 9) else i % 7 + 0.5}\n" for i in range(60)]
        self.write("t.csv", "time,a,y\n" + "".join(rows))
        said = self.run_dltrain("init", "--data", "t.csv", "-o", "t.yaml", cwd=self.folder).out
        text = (self.folder / "t.yaml").read_text()
        for part in (said, text):
            self.assertIn("the target is missing in 2 rows; remove such rows first\n", part)
        self.assertIn("\n  eval_split: tail ", text)
        self.write("t.csv", "time,a,y\n" + "".join(row for row in rows if not row.endswith(",\n")))
        self.assertNotIn("missing", self.run_dltrain("init", "--data", "t.csv", cwd=self.folder).out)
        self.run_dltrain("t.yaml", "--max-steps", 2, "-q", cwd=self.folder)

    def test_images(self):
        self.images("images", 44)
        self.train("convnet", "-s", "training.global_batch_size=8")
        self.images("train", 64)
        self.images("val", 64)
        self.train("resnet", "-s", "training.global_batch_size=4", "-s", "training.micro_batch_size=4", "-s", "precision.compute=f32")

    def test_texts_with_classes(self):
        self.write("texts.csv", "id,text,label\n" + "".join(f"{i},The number {i},{'even' if i % 2 == 0 else 'odd'}\n" for i in range(100)))
        run = self.train("text-classifier")
        self.assertIn("eval_f1_macro", json.loads((run / "summary.json").read_text()))

    def test_texts(self):
        self.write("text.txt", self.words())
        run = self.train("lstm")
        self.assertTrue((run / "samples.jsonl").exists())
        self.write("texts/a.txt", self.words())
        self.run_dltrain("data", "tokenizer", "texts/*.txt", "--vocab-size", 300, "-o", "tokenizer", cwd=self.folder)
        small = ("-s", "training.global_batch_size=4", "-s", "precision.compute=f32", "-s", "model.num_layers=1")
        run = self.train("pre-train", *small)
        # What was trained there is the model that fine-tuning begins with.
        self.run_dltrain("export", run, "model", cwd=self.folder)
        self.write("answers.jsonl", "".join(json.dumps({"prompt": f"The number {i} ", "completion": f"jumps {i}"}) + "\n" for i in range(60)))
        run = self.train("fine-tune", "-s", "data.sequence_length=64")
        self.run_dltrain("export", run, "merged", "--merge", cwd=self.folder)

    def test_every_template_is_described_and_tested(self):
        tested = set(re.findall(r'self\.train\("([a-z-]+)"', (SOURCES / "tests" / "apps" / "test_init.py").read_text()))
        self.assertEqual(TEMPLATES, tested)
        said = self.run_dltrain("init", "--help").out
        for name in TEMPLATES:
            self.assertRegex(said, rf"\n *{name}: \S+ \S+")
            self.assertEqual(self.run_dltrain("init", name).out, (SOURCES / "configs" / "templates" / f"{name}.yaml").read_text())

    def test_a_file_is_kept_without_force(self):
        path = self.template("mlp")
        path.write_text("mine")
        self.refused(USAGE, "init", "mlp", "-o", path, says="--force")
        self.assertEqual(path.read_text(), "mine")
        self.run_dltrain("init", "mlp", "-o", path, "--force")
        self.refused(USAGE, "init", "transformer", says="transformer")
        self.refused(USAGE, "init", "convnet", "--data", path, says="--data belongs to the template mlp")


if __name__ == "__main__":
    main()
