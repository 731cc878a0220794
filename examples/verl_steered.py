"""verl's own data set, in the order that a memory of causes draws. Beside the training run:

    diagevo ingest verl ROLLOUTS --run math --follow --steer next.json --dataset train.parquet
        --set roles.diagnostician.engine=local

and give verl's trainer, with `pip install --no-deps diagevo` in its environment:

    data.train_files=train.parquet data.custom_cls.path=examples/verl_steered.py data.custom_cls.name=Steered
    +data.custom_cls.draws=next.json data.dataloader_num_workers=0 trainer.rollout_data_dir=ROLLOUTS
"""

from verl.utils.dataset.rl_dataset import RLHFDataset

from diagevo.integrations.next_draws import NextDraws


class Steered(RLHFDataset):
    """verl makes one of the training's files and one of the validation's, which stays as it is."""

    def __init__(self, data_files, tokenizer, config, processor=None, max_samples=-1):
        self.steers = data_files == config.train_files
        if self.steers and (max_samples > 0 or config.dataloader_num_workers):
            raise ValueError("set data.train_max_samples=-1 and data.dataloader_num_workers=0")
        if self.steers and data_files == config.val_files:
            raise ValueError("give the validation a file of its own: data.val_files")
        super().__init__(data_files, tokenizer, config, processor, max_samples)
        if self.steers:
            self.draws = NextDraws(config.custom_cls.draws)

    def maybe_filter_out_long_prompts(self, dataframe=None):
        """What is left, with the place of each row in the file, by which the draws name it."""
        numbered = dataframe.add_column("diagevo_row", range(len(dataframe)))
        kept = super().maybe_filter_out_long_prompts(numbered)
        self.places = {row: place for place, row in enumerate(kept["diagevo_row"])}
        return kept

    def __getitem__(self, item):
        if self.steers:  # whatever the sampler asks for, the next draw of a row that is not too long
            item = next(place for draw in self.draws if (place := self.places.get(draw["row"])) is not None)
        return super().__getitem__(item)
