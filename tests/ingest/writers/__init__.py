"""The trainers' own writers, run with rollouts that we made up. What is true of those stands beside the files
in `truth.json`: of each group its prompt, and of each rollout its reward and its texts in their order."""
