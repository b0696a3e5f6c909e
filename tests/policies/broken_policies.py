"""A file of a user's own, with policies that fail."""

from policies import UniD


class Broken(UniD):
    def decide(self, observation):
        raise RuntimeError(f"out of order at {len(observation)} observations\nand more")


class Caused(UniD):
    def decide(self, _):
        try:
            return {}["gain"]
        except KeyError as error:
            raise ValueError("no gain\nand more") from error
