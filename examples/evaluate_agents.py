"""Compare trained agents with the analytic policies by the protocol in docs/protocol.md.

Each agent is a folder with the runs of its training seeds, as train_sb3.py writes them:

    python examples/evaluate_agents.py runs/agents/cifar10-ppo-privileged
"""

from train_fl.command_line import main

if __name__ == "__main__":
    main(command="evaluate-agents", description=__doc__)
