"""One case as it is run: its files, and Heddle's answers to them."""

import fnmatch
import json
import math
import pathlib
import time

import data
import tensors
import translate
from outcome import Failed, Missing, Refused

SEED = 20
CLUSTER = {"name": "this machine", "nodes": 1, "devices_per_node": 8, "device": "host",
           "links": [{"level": "node", "gbytes_per_s": 5}]}

# Names that cases use for parameters of every family, by what GPT-2 calls them.
GPT2_SPELLING = {"transformer.wte": "embed_tokens", "transformer.wpe": "embed_positions", "transformer.h.": "layers.",
                 ".ln_1": ".input_layernorm", ".ln_2": ".post_attention_layernorm", "transformer.ln_f": "norm"}


def spelled_alike(name):
    for own, common in GPT2_SPELLING.items():
        name = name.replace(own, common)
    return name


def matching(names, pattern):
    """Names that one of the alternatives of `pattern` is found in; `matrices` are
    told by the caller."""
    found = [name for name in names if any(
        fnmatch.fnmatchcase(spelling, f"*{part}*") for part in pattern.split("|")
        for spelling in (name, spelled_alike(name)))]
    if not found:
        raise Failed(f"no parameter matches {pattern}")
    return found


def find_config(reference, folder):
    """`config_ref` of a case file in `folder`: beside it or one folder above."""
    for place in (folder, folder.parent):
        if (place / reference).exists():
            return place / reference
    raise Missing(f"file {reference} beside the case file or one folder above")


class Case:
    """`source`: the folder of the case file. `folder`: where files may be written."""

    def __init__(self, given, heddle, source, folder):
        self.id, self.title = given["id"], given.get("title", "")
        self.model, self.plan, self.batch = given["model"], given["plan"], given["batch"]
        self.train = given.get("train")
        self.assertions = given["check"]["assertions"]
        self.heddle, self.source, self.folder = heddle, source, pathlib.Path(folder)
        self.accepted_refusals = []  # plans that equal_or_reject found properly refused
        self.known = {}              # what is made once: files and answers
        self.files = 0

    # Files

    def write(self, name, text):
        """A new file each time: an answer's files can be looked at afterwards."""
        self.files += 1
        path = self.folder / f"{self.files:02}-{name}"
        path.write_text(text)
        return path

    def once(self, key, make):
        """make(), or what it gave or raised the first time."""
        key = json.dumps(key, sort_keys=True)
        if key not in self.known:
            try:
                self.known[key] = (make(), None)
            except (Failed, Missing, Refused) as outcome:
                self.known[key] = (None, outcome)
        value, outcome = self.known[key]
        if outcome is not None:
            raise outcome
        return value

    def config(self, families=translate.FAMILIES):
        """config.json as a dictionary."""
        if "config_ref" in self.model:
            config = json.loads(find_config(self.model["config_ref"], self.source).read_text())
            translate.require_family(config, families)
            return config
        return translate.config_of(self.model, families)

    def planning_config_file(self):
        """The same as a file, of families that are planned and not compiled too."""
        return self.once("planning config", lambda: self.write(
            "config.json", json.dumps(self.config(translate.PLANNED_FAMILIES), indent=1)))

    def config_file(self, changes=None):
        return self.once(["config", changes], lambda: self.write(
            "config.json", json.dumps({**self.config(), **(changes or {})}, indent=1)))

    def layers(self):
        config = self.config()
        return config.get("num_hidden_layers") or config["n_layer"]

    # What Heddle says of the model

    def explanation(self):
        return self.once("explain", lambda: self.heddle.explain(self.config_file()))

    def explain_plan(self, plan, sequences):
        """What Heddle says of a plan for steps of that many sequences."""
        def make():
            plan_file, train_file = self.plan_files(plan, sequences, self.batch["seq_len"])
            return self.heddle.explain(self.config_file(), train_file, plan_file)
        return self.once(["explain", plan, sequences], make)

    def compiled(self, plan, layers=None, sequences=None):
        """The folder of the plan's program; `layers` changes the model's number of them, `sequences` the global batch."""
        return self.compiled_aloud(plan, layers, sequences)[0]

    def compiled_aloud(self, plan, layers=None, sequences=None):
        """The same, and what the compiler says."""
        def make():
            layers_key = "n_layer" if "n_layer" in self.config() else "num_hidden_layers"
            config = self.config_file({layers_key: layers} if layers else None)
            files = self.plan_files(plan, sequences or self.batch["sequences"], self.batch["seq_len"], layers)
            cluster = self.write("cluster.yaml", json.dumps(CLUSTER))
            folder = self.folder / f"{self.files:02}-compiled"
            return folder, self.heddle.compile(config, *files, cluster, folder)
        return self.once(["compiled", plan, layers, sequences], make)

    def layout(self, plan, layers=None):
        """layout.json: which rank holds which part of what."""
        return json.loads((self.compiled(plan, layers) / "layout.json").read_text())

    def record(self, plan):
        """The program's recording, which checks that messages and collectives of its ranks agree."""
        folder = self.compiled(plan)
        try:
            return self.once(["record", plan], lambda: self.heddle.answer(["run", folder, "--dry"]))
        except Refused as reason:
            raise Failed(f"the recording of the program is refused: {reason}") from None

    def initial(self, plan):
        """{name: (shape, values)} with which a run of the plan begins."""
        def make():
            folder = self.compiled(plan)
            batch_file, saved = self.write("data.safetensors", ""), self.folder / f"{folder.name}.safetensors"
            tensors.write(batch_file, data.as_tensors(self.make_batch(1)))
            self.heddle.train(folder, batch_file, saved)
            return tensors.read(saved)
        return self.once(["initial", plan], make)

    def shapes(self):
        """Shape in the checkpoint by name, of every parameter."""
        return {entry["name"]: entry.get("file_shape", entry["shape"]) for entry in self.explanation()["tensors"]}

    # Runs

    def steps(self):
        return len(self.batch.get("sequences_per_step", [])) or (self.train or {}).get("steps", 1)

    def make_batch(self, steps=None):
        return self.once(["batch", steps], lambda: data.make_batch(
            self.batch, self.config()["vocab_size"], steps or self.steps(), SEED))

    def plan_files(self, plan, sequences, length, layers=None):
        """plan.json and train.yaml for steps of that many sequences of that length."""
        parameters = self.explanation()["parameters"]
        made = translate.plan_of(plan, layers or self.layers(), sequences, parameters)
        if "microbatch_sizes" in plan:  # a short step of full micro-batches
            sequences = made["micro_batch"] * made["micro_batches"] * plan["dp"]
        train = translate.train_of(self.train, sequences, length)
        return (self.write("plan.json", json.dumps(made, indent=1)),
                self.write("train.yaml", json.dumps(train, indent=1)))  # JSON is YAML

    def weights(self, given=None):
        """The weights; `given` ({name: number}) sets whole tensors."""
        init = (self.train or {}).get("init")
        if init not in (None, "layer index"):
            raise Missing(f"init {init}")
        made = self.once("weights", lambda: data.layer_indices(self.shapes()) if init
                         else data.make_weights(self.shapes(), self.model.get("bias_init"), SEED))
        for name, value in (given or {}).items():
            if name not in made:
                raise Missing(f"parameter {name}")
            made = {**made, name: ("F32", made[name][1], [value] * math.prod(made[name][1]))}
        return made

    def weights_file(self, given=None):
        def make():
            path = self.write("weights.safetensors", "")
            tensors.write(path, self.weights(given))
            return path
        return self.once(["weights file", given], make)

    def verify(self, plan, steps=None, batch=None, given=None):
        """Heddle's answer: the plan against one device, over `steps` steps of this
        case's data, or on `batch` (one step). `given` as in weights()."""
        steps = steps or self.steps()
        return self.once(["verify", plan, steps, batch, given], lambda: self.new_answer(plan, steps, batch, given))

    def new_answer(self, plan, steps, batch, given):
        rows = batch or self.make_batch(steps)
        sequences = len(rows["tokens"]) if batch else max(data.step_sizes(self.batch, steps))
        plan_file, train_file = self.plan_files(plan, sequences, len(rows["tokens"][0]))
        batch_file = self.write("batch.safetensors", "")
        tensors.write(batch_file, data.as_tensors(rows))
        dump = self.folder / f"{self.files:02}-dump"
        files = (self.config_file(), plan_file, train_file, batch_file, self.weights_file(given), dump)
        begin = time.monotonic()
        answer = self.heddle.verify(*files)
        return {**answer, "dump": str(dump), "seconds_taken": time.monotonic() - begin}
