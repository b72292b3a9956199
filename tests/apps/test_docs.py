"""Runs the commands of README.md and docs/: every block marked bash, and every line that begins with "$ " of a block marked
console, in a folder where the files exist that the page speaks of. Blocks marked sh need what is not there (other launchers, a
cluster, PyTorch), unmarked blocks show output or syntax."""
import json
import os
import re
import signal
import subprocess

from support import MEMORY, OK, PROGRAM, SMALL, SOURCES, DltrainTest, main, png

LETTERS = """
data: {type: text, path: text.txt, tokenizer: char, sequence_length: 16, eval_fraction: 0.1}
optimizer: {type: adamw, learning_rate: 1.0e-3}
training: {global_batch_size: 4, max_steps: 4}
"""
GPT = "model: {type: gpt2, num_layers: 1, hidden_size: 32, num_heads: 2, max_positions: 64}" + LETTERS


def blocks(page):
    """(line, marker, text) of the fenced blocks of a page."""
    text = (SOURCES / page).read_text(encoding="utf-8")
    return [(text[: found.start()].count("\n") + 1, found[1], found[2]) for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)]


def commands(page):
    """(line, script, whether the plan that it prints fits the memory) of what a page lets people run."""
    for line, marker, text in blocks(page):
        if marker == "bash":
            yield line, text, True
        elif marker == "console":
            script = "rm -rf runs\n" + "\n".join(command[2:] for command in text.splitlines() if command.startswith("$ "))
            yield line, script, "does not fit: needs" not in text


ALL_PAGES = sorted(["README.md", "CONTRIBUTING.md", *(str(path.relative_to(SOURCES)) for path in (SOURCES / "docs").rglob("*.md"))])
PAGES = [page for page in ALL_PAGES if any(commands(page))]


class Docs(DltrainTest):
    def setUp(self):
        super().setUp()
        for name in ("data", "scripts", "bench"):
            (self.folder / name).symlink_to(SOURCES / name)
        # The recipe of the examples, with fewer steps.
        for path in (SOURCES / "configs").rglob("*.yaml"):
            self.write(path.relative_to(SOURCES), path.read_text().replace("max_steps: 5000", "max_steps: 500"))
        (self.folder / "build").mkdir()
        (self.folder / "build" / "dltrain").symlink_to(PROGRAM)
        self.environment = dict(os.environ, PATH=f"{self.folder / 'build'}:{os.environ['PATH']}")

    def shell(self, script):
        process = subprocess.Popen(["bash", "-eu", "-c", script], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
        try:
            out, err = process.communicate(timeout=self.timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with what it has left in the background
            out, err = process.communicate()
            self.fail(f"hangs: {script}\n{out[-3000:]}{err[-3000:]}")
        return subprocess.CompletedProcess(script, process.returncode, out, err)

    def page(self, page, *scripts):
        """Runs the commands of a page after those that make its files."""
        for script in scripts:
            done = self.shell(script)
            self.assertEqual(done.returncode, 0, f"{script}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        for line, script, fits in commands(page):
            done = self.shell(script)
            self.assertEqual(done.returncode, OK if fits else MEMORY, f"{page}:{line}\n{script}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")

    def letters(self):
        self.write("text.txt", "".join(f"In the beginning ROMEO: said {i}, Once upon a time\n" for i in range(400)))
        self.write("gpt.yaml", GPT)
        self.write("lstm.yaml", "model: {type: char_lstm, hidden_size: 16}" + LETTERS)

    def test_readme(self):
        self.letters()
        self.page("README.md", "dltrain gpt.yaml -q --name bible-char-gpt; dltrain gpt.yaml -q --name finetune-gpt2")
        self.assertTrue((self.folder / "gpt2-mine" / "model.safetensors").exists())

    def test_tutorial(self):
        self.page("docs/tutorial.md")
        predicted = (self.folder / "predictions.csv").read_text().splitlines()
        self.assertEqual(len(predicted), 6)
        self.assertTrue((self.folder / "study.html").exists())

    def test_data(self):
        self.letters()
        self.write("titanic.csv", "Name,Age,Fare,Sex,Survived\n" + "".join(
            f"P{i},{20 + i % 40},{i % 13}.5,{'male' if i % 3 else 'female'},{int(i % 3 == 0)}\n" for i in range(200)))
        for folder in ("photos", "new-photos"):
            for kind in ("cat", "dog"):
                for i in range(8):
                    self.write(f"{folder}/{kind}/{i}.png", png(8, 8, lambda y, x: (40 * len(kind) + i, x, y)))
        self.write("photos.yaml", """
model: {layers: [flatten, linear: auto]}
data: {type: image_folder, path: photos, normalize: auto, transforms: [resize: [8, 8]], eval_fraction: 0.25}
optimizer: {type: sgd, learning_rate: 0.01}
training: {global_batch_size: 4, max_steps: 4}
""")
        self.page("docs/data.md", """
dltrain photos.yaml -q --name photos
dltrain init mlp --data titanic.csv --target Survived -o table.yaml && dltrain table.yaml -q --name table --max-steps 5
head -n 20 titanic.csv | sed 's/,[01]$//; s/,Survived//' > new.csv
dltrain lstm.yaml -q --name shakespeare && cp text.txt other.txt
(echo text,label; for i in $(seq 80); do echo "$i is a number,$((i % 2))"; done) > texts.csv
(echo text; echo 7 is a number) > new-texts.csv""")

    def test_language_models(self):
        self.letters()
        self.write("prompts.txt", "ROMEO\n")
        self.page("docs/language-models.md",
                  "dltrain gpt.yaml -q --name char && mkdir -p path/to && dltrain export runs/char path/to/gpt2")
        texts = (self.folder / "texts.jsonl").read_text().splitlines()
        self.assertEqual(len([json.loads(line) for line in texts]), 4)

    def test_training(self):
        table = "x,y,kind\n" + "".join(f"{i % 7},{i % 5},{'ab'[i % 2]}\n" for i in range(80))
        self.write("table.csv", table)
        self.write("new.csv", table)
        self.letters()
        self.write("mine.yaml", SMALL.replace("name: small", "name: mine").replace("max_steps: 40", "max_steps: 1200").replace("save_steps: 10", "save_steps: 500"))
        self.write("table.yaml", """
model: {layers: [linear: 8, relu, linear: auto]}
data: {type: csv, path: table.csv, target: kind, normalize: auto, eval_fraction: 0.2}
optimizer: {type: sgd, learning_rate: 0.005}
training: {global_batch_size: 8, max_steps: 20}
checkpoint: {save_steps: 10}
experiment: {tags: [quick]}
""")
        self.page("docs/training.md", """
dltrain mine.yaml -q
for seed in a:1 b:2 c:3; do dltrain table.yaml -q --name ${seed%:*} --seed ${seed#*:}; done
dltrain gpt.yaml -q --name gpt && dltrain export runs/gpt gpt2""")

    def test_other_pages(self):
        self.write("exp.yaml", SMALL)
        for page in PAGES:
            if page.removeprefix("docs/") in ("README.md", "tutorial.md", "data.md", "language-models.md", "training.md", "scale.md"):
                continue
            self.page(page)

    def test_the_table_of_large_models_is_what_its_script_prints(self):
        done = self.shell("scripts/scale_table.py")
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        page = (SOURCES / "docs/scale.md").read_text(encoding="utf-8")
        self.assertEqual(done.stdout, re.search(r"^\| model .*?^Tokens per second [^\n]*\n", page, re.M | re.S)[0])

    def test_links_of_pages_lead_to_files(self):
        for page in ["CHANGELOG.md", "SECURITY.md", "examples/cluster/README.md", *ALL_PAGES]:
            path = SOURCES / page
            for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8")):
                if "://" not in link:
                    self.assertTrue((path.parent / link).exists(), f"{page}: {link}")

    def test_what_is_not_run_is_marked(self):
        for page in ALL_PAGES:
            for line, marker, text in blocks(page):
                self.assertIn(marker, ("", "bash", "console", "sh", "yaml", "json", "cpp", "python"), f"{page}:{line}")
                # An unmarked block is output or syntax with words in capitals, never a command for the reader.
                if marker == "" and re.match(r"(build/)?dltrain [a-z]", text):
                    self.assertRegex(text, r"\b[A-Z]{3,}\b|…|dltrain: ", f"{page}:{line}: mark it bash, console or sh")


if __name__ == "__main__":
    main()
